// <rg-chat src="/api/chat">: a chat that knows how to be refused. No dependencies, no build step.
//
// It posts {"messages": [...]}, reads an OpenAI chat event stream, and shows the guard's own words when it gets an
// error object instead. Text from the network only ever becomes text nodes, and the style sheet is constructed, so
// `Content-Security-Policy: default-src 'self'` is enough.

const HISTORY = 12; // messages sent at most, the new question included
const RESTING_POLL_SECONDS = 10;
const LOCK_SECONDS_MAX = 3600; // then let the visitor try, whatever the clock says

const CSS = `
:host{--paper:#fffdf8;--ink:#2a231a;--soft:#6f6455;--line:#e4dacb;--mine:#f3e5cf;--accent:#9a4f06;--bad:#a23b26;
  display:block;font:15px/1.5 system-ui,sans-serif;color:var(--ink)}
@media(prefers-color-scheme:dark){:host{--paper:#211c16;--ink:#f1e8da;--soft:#b0a492;--line:#3b332a;--mine:#40321f;
  --accent:#f0b25f;--bad:#f0907a}}
*{box-sizing:border-box}
section{display:flex;flex-direction:column;height:100%;background:var(--paper);border:1px solid var(--line);
  border-radius:16px;overflow:hidden;box-shadow:0 10px 34px #2a1d0a1c}
header{display:flex;align-items:center;gap:8px;padding:12px 16px;border-bottom:1px solid var(--line)}
h2{font-size:15px;margin:0;flex:1}
.state{font-size:12px;color:var(--soft)}
.state::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;margin-right:6px;background:#4d9a6a}
.resting .state::before{background:var(--soft)}
.log{flex:1;overflow-y:auto;padding:16px;display:flex;flex-direction:column;gap:8px;min-height:120px}
.log p{margin:0;padding:8px 12px;border-radius:14px;max-width:88%;white-space:pre-wrap;overflow-wrap:anywhere;
  border:1px solid var(--line);align-self:flex-start;border-bottom-left-radius:4px}
.log .mine{background:var(--mine);border-color:transparent;align-self:flex-end;border-radius:14px 14px 4px 14px}
.log .lost{opacity:.8;border-style:dashed;border-color:currentColor}
.log .notice{border-color:var(--bad);color:var(--bad)}
.busy:empty::after{content:"•••";letter-spacing:2px;color:var(--soft);animation:pulse 1.2s infinite}
@keyframes pulse{50%{opacity:.3}}
@media(prefers-reduced-motion:reduce){.busy:empty::after{animation:none}}
.ideas{display:flex;flex-wrap:wrap;gap:6px;padding:8px 16px}
::slotted(button){font:inherit;font-size:13px;color:var(--accent);background:none;border:1px solid var(--line);
  border-radius:99px;padding:3px 11px;cursor:pointer}
.note{margin:0;padding:0 16px 6px;font-size:13px;color:var(--bad);font-variant-numeric:tabular-nums}
.note:empty{display:none}
form{display:flex;gap:8px;padding:10px 12px 12px;border-top:1px solid var(--line)}
textarea{flex:1;min-width:0;resize:none;font:inherit;font-size:16px;color:inherit;background:none;border:1px solid var(--soft);
  border-radius:10px;padding:7px 10px}
textarea::placeholder{color:var(--soft);opacity:1}
form button{font:inherit;font-weight:600;min-width:72px;border:0;border-radius:10px;background:var(--accent);color:var(--paper);cursor:pointer}
form button:disabled,::slotted(button:disabled){opacity:.5;cursor:default}
:is(textarea,button,.log):focus-visible,::slotted(button:focus-visible){outline:2px solid var(--accent);outline-offset:2px}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}`;

const HTML = `<section aria-labelledby="h"><header><h2 id="h"></h2><span class="state" role="status"></span></header>
<div class="log" role="log" aria-live="polite" tabindex="0" aria-label="Conversation"></div>
<div class="ideas"><slot></slot></div><p class="note" aria-hidden="true"></p><p class="told hidden" role="status"></p>
<form><label class="hidden" for="q">Your question</label><textarea id="q" rows="1" maxlength="2000"
placeholder="Type a question" enterkeyhint="send"></textarea><button>Send</button></form></section>`;

const sheet = new CSSStyleSheet();
sheet.replaceSync(CSS);

class RgChat extends HTMLElement {
  #history = [];
  #running = null; // AbortController of the answer being read
  #lockedUntil = 0;
  #timer = 0;

  connectedCallback() {
    if (!this.shadowRoot) this.#build();
    this.askOpen();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#running?.abort();
  }

  #build() {
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    root.innerHTML = HTML;
    this.$ = (selector) => root.querySelector(selector);
    this.$("h2").textContent = this.getAttribute("heading") || "Chat";
    if (this.getAttribute("greeting")) this.#bubble(this.getAttribute("greeting"));
    this.$("form").onsubmit = (event) => {
      event.preventDefault();
      this.#running ? this.#running.abort() : this.#send(this.$("textarea").value.trim());
    };
    this.$("textarea").onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#running) this.#send(event.target.value.trim());
    };
    this.$("textarea").onfocus = () => this.#running || this.#lockedUntil || this.askOpen();
    this.onclick = ({ target }) => {
      if (target.matches?.("rg-chat > button") && !this.#running) this.#send(target.textContent);
    };
  }

  /** Is anybody at home? Asked before the visitor types, and again while the assistant rests. */
  async askOpen() {
    const source = this.getAttribute("open-src");
    let state = { open: true };
    try {
      const answer = source && (await fetch(source, { cache: "no-store" }));
      if (answer?.ok) state = await answer.json();
    } catch {} // unreachable: the question itself will tell
    const resting = state.open === false;
    this.$("section").classList.toggle("resting", resting);
    this.$(".state").textContent = resting ? "resting" : "here to help";
    this.dispatchEvent(new CustomEvent("rg-open", { detail: !resting, bubbles: true }));
    const back = clock(state.resets_at);
    if (resting) this.#lock(RESTING_POLL_SECONDS, () => `The assistant is resting${back && ` until ${back}`}.`);
    else this.#unlock();
    return !resting;
  }

  async #send(question) {
    if (!question || this.#running || this.#lockedUntil > Date.now()) return;
    const mine = this.#bubble(question, "mine");
    const answer = this.#bubble("", "busy");
    this.$("textarea").value = "";
    this.#running = new AbortController();
    this.#refresh();
    try {
      const messages = [...this.#history, { role: "user", content: question }].slice(-HISTORY);
      const response = await fetch(this.getAttribute("src"), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ messages }),
        signal: this.#running.signal,
      });
      if (!response.ok) throw await refusal(response);
      await this.#read(response.body, answer);
      // Only a question that was answered to its end is part of the conversation.
      this.#history.push({ role: "user", content: question }, { role: "assistant", content: answer.textContent });
    } catch (error) {
      this.#fail(error, question, mine, answer);
    }
    answer.classList.remove("busy");
    this.#running = null;
    this.#refresh();
    // Unless the visitor has gone elsewhere in the meantime.
    const focused = document.activeElement;
    if (focused === document.body || this.contains(focused)) this.$("textarea").focus({ preventScroll: true });
  }

  /** Puts the words of an event stream into `answer`; throws when it ends before its own end mark. */
  async #read(body, answer) {
    const words = document.createTextNode("");
    answer.append(words);
    let rest = "";
    for (const reader = body.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) throw { message: "The answer broke off." };
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        const data = line.startsWith("data:") ? line.slice(5).trim() : "";
        if (data === "[DONE]") return;
        if (!data) continue;
        const chunk = JSON.parse(data);
        if (chunk.error) throw { message: chunk.error.message };
        words.data += chunk.choices?.[0]?.delta?.content ?? "";
        this.#toEnd();
      }
    }
  }

  async #fail(error, question, mine, answer) {
    const stopped = error.name === "AbortError";
    if (!answer.textContent) answer.remove();
    mine.classList.toggle("lost", !stopped);
    const broken = answer.textContent ? "The answer broke off." : "No connection. Please try again.";
    this.#bubble(stopped ? "Stopped." : error instanceof Error ? broken : error.message, "notice");
    if (!stopped) this.$("textarea").value ||= question;
    if (error.status === 503) await this.askOpen(); // resting says more than a countdown
    if (!error.waitSeconds || this.#lockedUntil > Date.now()) return;
    const at = clock(error.resetsAt);
    this.#lock(error.waitSeconds, (left) => `You can ask again ${at && `at ${at}, `}in ${span(left)}.`);
  }

  /** No questions for a while; `say` tells why, given the seconds left. */
  #lock(seconds, say) {
    const ends = Date.now() + seconds * 1000;
    this.#lockedUntil = Math.min(ends, Date.now() + LOCK_SECONDS_MAX * 1000);
    if (this.$(".told").textContent !== say(seconds)) this.$(".told").textContent = say(seconds);
    clearTimeout(this.#timer);
    const tick = () => {
      if (this.#lockedUntil <= Date.now()) return this.askOpen();
      this.$(".note").textContent = say(Math.ceil((ends - Date.now()) / 1000));
      this.#timer = setTimeout(tick, 1000);
    };
    tick();
    this.#refresh();
  }

  #unlock() {
    if (this.#lockedUntil) this.$(".told").textContent = "You can ask again now.";
    this.#lockedUntil = 0;
    this.$(".note").textContent = "";
    this.#refresh();
  }

  #refresh() {
    const button = this.$("form button");
    button.textContent = this.#running ? "Stop" : "Send";
    const locked = this.#lockedUntil > Date.now() && !this.#running;
    button.disabled = locked;
    for (const idea of this.querySelectorAll("button")) idea.disabled = locked || !!this.#running;
    // A screen reader waits for the whole answer instead of reading each word twice.
    this.$(".log").setAttribute("aria-busy", String(!!this.#running));
    this.#toEnd();
  }

  #bubble(text, kind = "") {
    const bubble = document.createElement("p");
    bubble.className = kind;
    bubble.textContent = text;
    this.$(".log").append(bubble);
    this.#toEnd();
    return bubble;
  }

  #toEnd() {
    this.$(".log").scrollTop = this.$(".log").scrollHeight;
  }
}

/** What to show and how long to wait, from the guard's error object or whatever else refused. */
async function refusal(response) {
  const error = (await response.json().catch(() => ({}))).error ?? {};
  const resetsAt = Date.parse(error.resets_at);
  return {
    status: response.status,
    message: String(error.message || `The server answered ${response.status}.`),
    resetsAt: error.resets_at,
    waitSeconds: resetsAt ? Math.ceil((resetsAt - Date.now()) / 1000) : Number(error.retry_after) || 0,
  };
}

function clock(time) {
  const date = new Date(time ?? NaN);
  if (isNaN(date)) return "";
  const today = date.toDateString() === new Date().toDateString();
  return date.toLocaleString([], { weekday: today ? undefined : "short", hour: "2-digit", minute: "2-digit" });
}

function span(seconds) {
  const minutes = Math.ceil(seconds / 60);
  if (seconds < 90) return `${seconds} s`;
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

customElements.define("rg-chat", RgChat);
