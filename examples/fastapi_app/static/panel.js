// The owner's panel: asks both guards for their state each second, shows it, and works the attack buttons.
// Text from the network only ever becomes text nodes.

import { describeChanges } from "./feed.js";
import { count, parts, usd } from "./money.js";

const POLL_MS = 1000;
const FEED_LINES = 60;
const RESULTS = 6;
const GUARDED = "/_routeguard";
const OBSERVED = "/demo/observed";

const $ = (id) => document.getElementById(id);
let config;
let last = {};

addEventListener("rg-open", (event) => document.documentElement.classList.toggle("resting", !event.detail));
start();

async function start() {
  try {
    config = await (await fetch("/demo/config.json")).json();
  } catch {
    return setTimeout(start, POLL_MS);
  }
  $("about").textContent = `Answered by ${config.model}. Pretend prices: $${config.price_in} in and $${config.price_out} out per million tokens.`;
  $("attacks").replaceChildren(...config.attacks.map(attackButton));
  $("pause").onclick = togglePause;
  poll();
}

async function poll() {
  try {
    const [guarded, observed] = await Promise.all([call("GET", `${GUARDED}/status`), call("GET", `${OBSERVED}/status`)]);
    show(guarded);
    if (last.guarded && last.guarded.paused !== guarded.paused) document.querySelector("rg-chat").askOpen();
    showObserved(observed);
    tell(describeChanges(last.guarded, guarded), describeChanges(last.observed, observed, "observed: "));
    last = { guarded, observed };
  } catch {
    setMode("unreachable", true);
  }
  setTimeout(poll, POLL_MS);
}

async function call(method, path) {
  const response = await fetch(path, { method, headers: { Authorization: `Bearer ${config.token}` }, cache: "no-store" });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

function show(status) {
  const budget = status.budgets[0];
  const money = parts(budget);
  setMode(status.paused ? "paused" : status.mode === "enforce" ? "enforcing" : status.mode, status.paused);
  $("pause").textContent = status.paused ? "Resume" : "Pause";
  $("pause").disabled = false;
  $("spent").textContent = usd(money.charged);
  $("limit").textContent = `of ${usd(money.limit)} ${{ day: "today", hour: "this hour" }[budget.window] ?? `this ${budget.window}`}`;
  $("reset").textContent = budget.resets_at ? `resets in ${untilReset(budget.resets_at)}` : "";
  for (const part of ["settled", "open", "kept", "left"]) $(part).textContent = usd(money[part]);
  fillBar($("bar"), money);
  $("in-flight").textContent = status.in_flight;
  $("admitted").textContent = status.requests.admitted;
  $("rejected").textContent = count(status.requests.rejected);
  $("reasons").replaceChildren(...tally(status.requests.rejected));
  $("endings").replaceChildren(...tally(status.requests.endings));
  $("clients").replaceChildren(...status.top_clients.slice(0, 8).map(clientRow));
}

function showObserved(status) {
  const money = parts(status.budgets[0]);
  fillBar($("observed-bar"), money);
  const would = count(status.would_reject);
  $("observed").textContent =
    `${usd(money.charged)} spent against the same ${usd(money.limit)}; ${would} ${would === 1 ? "request" : "requests"} would have been refused.`;
}

function setMode(text, alarm) {
  $("mode").textContent = text;
  $("mode").classList.toggle("alarm", alarm);
}

function fillBar(bar, money) {
  const whole = Math.max(money.limit, money.charged) || 1;
  for (const part of bar.children) part.style.width = `${(100 * money[part.className]) / whole}%`;
  bar.classList.toggle("over", money.charged > money.limit);
  const names = ["settled", "open", "kept", "left"].map((part) => `${usd(money[part])} ${part}`);
  bar.setAttribute("aria-label", `Budget of ${usd(money.limit)}: ${names.join(", ")}`);
}

function untilReset(time) {
  const minutes = Math.max(0, Math.ceil((Date.parse(time) - Date.now()) / 60000));
  const clock = new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min, at ${clock}`;
}

function tally(counts) {
  const rows = Object.entries(counts).filter(([, number]) => number).sort((one, other) => other[1] - one[1]);
  if (!rows.length) return [element("li", "none yet", "none")];
  return rows.map(([name, number]) => element("li", [element("span", name.replaceAll("_", " ")), element("b", number)]));
}

function clientRow(client) {
  const cells = [client.client, client.admitted, client.rejected, usd(client.spend_usd)];
  return element("tr", cells.map((cell) => element("td", cell)));
}

function tell(...news) {
  const time = new Date().toLocaleTimeString([], { hour12: false });
  for (const { text, kind } of news.flat()) {
    $("feed").prepend(element("li", [element("time", time), element("span", text, kind)]));
  }
  while ($("feed").children.length > FEED_LINES) $("feed").lastChild.remove();
}

async function togglePause() {
  $("pause").disabled = true;
  try {
    await call("POST", `${GUARDED}/${last.guarded.paused ? "resume" : "pause"}`);
  } catch (error) {
    tell([{ text: error.message, kind: "refused" }]);
    $("pause").disabled = false;
  }
}

function attackButton({ name, title, plan }) {
  const button = element("button", title);
  button.type = "button";
  button.onmouseenter = button.onfocus = () => ($("plan").textContent = plan);
  button.onclick = () => runAttack(button, name, plan);
  return button;
}

async function runAttack(button, name, plan) {
  const target = document.querySelector("[name=target]:checked").value;
  const buttons = [...$("attacks").children];
  const begun = performance.now();
  for (const each of buttons) each.disabled = true;
  button.setAttribute("aria-busy", "true");
  const clock = setInterval(() => {
    $("plan").textContent = `${plan} Running for ${Math.round((performance.now() - begun) / 1000)} s.`;
  }, 500);
  try {
    const report = await call("POST", `/demo/attack/${name}?target=${target}`);
    $("results").prepend(resultCard(report, target, (performance.now() - begun) / 1000));
  } catch (error) {
    $("results").prepend(element("li", `${button.textContent}: ${error.message}`));
  }
  clearInterval(clock);
  $("plan").textContent = plan;
  button.removeAttribute("aria-busy");
  for (const each of buttons) each.disabled = false;
  // The browser takes the focus from what is disabled; where somebody has gone elsewhere it stays there.
  if ([document.body, button].includes(document.activeElement)) button.focus({ preventScroll: true });
  while ($("results").children.length > RESULTS) $("results").lastChild.remove();
}

function resultCard(report, target, seconds) {
  const answers = Object.entries(report.answers).map(([answer, number]) =>
    element("span", `${number} × ${answer.replaceAll("_", " ")}`, answer.startsWith("200") ? "passed" : ""),
  );
  const kept = Number(report.kept_usd) ? `, ${usd(report.kept_usd)} kept, since all of it may be billed` : "";
  const requests = Object.values(report.answers).reduce((sum, number) => sum + number, 0);
  const spared = `${report.would_reject} of ${requests} would have been refused.`;
  return element("li", [
    element("div", [element("b", report.title), element("span", `${seconds.toFixed(1)} s`)], "top"),
    element("div", answers, "chips"),
    element("div", [
      element("b", target === "guarded" ? "Guarded" : "Observed"),
      element("span", `${usd(report.settled_usd)} settled${kept}. ${target === "observed" ? spared : ""}`),
      element("b", "Unguarded", "dear"),
      element("span", `up to ${usd(report.unguarded_usd)}: ${report.unguarded_why}.`),
    ], "versus"),
  ]);
}

function element(name, content, className = "") {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...(Array.isArray(content) ? content : [String(content)]));
  return node;
}
