// Asks for the numbers every two seconds while somebody looks, and shows them.

import { axis, barChart, budgetCard, count, element, eventLine, row, tally, usd } from "./draw.js";

const POLL_MS = 2000;
const TIMEOUT_MS = 5000;

const $ = (id) => document.getElementById(id);
/** What each part of the page shows now, so that what did not change is left alone: focus, selection, scroll. */
const shown = new Map();
const pids = new Set();
let timer;
let paused = false;
let lost = 0;

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
$("pause").addEventListener("click", steer);
poll();

async function poll() {
  clearTimeout(timer);
  try {
    const response = await fetch("live", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.status === 401) return location.reload();
    if (!response.ok) throw new Error(`status ${response.status}`);
    show(await response.json());
    lost = 0;
  } catch {
    lost ||= Date.now();
    setMode("no answer", "alarm");
    notices([["alarm", `The application has not answered for ${Math.round((Date.now() - lost) / 1000)} s. What is below is what it said last.`]]);
    document.body.classList.add("stale");
  }
  if (!document.hidden) timer = setTimeout(poll, POLL_MS);
}

async function steer() {
  const button = $("pause");
  button.disabled = true;
  try {
    const response = await fetch(paused ? "resume" : "pause", { method: "POST", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.status === 401) return location.reload();
    if (!response.ok) throw new Error((await response.json()).error.message);
  } catch (error) {
    notices([["alarm", `Nothing was changed: ${error.message}`]]);
  }
  await poll();
  button.focus({ preventScroll: true });
}

function show(now) {
  const time = Date.parse(now.now);
  paused = now.paused;
  pids.add(now.process.pid);
  document.body.classList.toggle("stale", !now.ledger.healthy);
  document.title = `${now.budgets.length ? `${headline(now.budgets[0])} · ` : ""}${paused ? "PAUSED · " : ""}routeguard`;
  $("namespace").textContent = now.namespace === "default" ? "" : now.namespace;
  showMode(now);
  notices(warnings(now));
  $("pause").disabled = false;
  $("pause").textContent = paused ? "Resume" : "Pause";
  $("pause").className = paused ? "danger" : "";
  for (const small of document.querySelectorAll(".process")) small.textContent = pids.size > 1 ? `process ${now.process.pid} of ${pids.size} seen` : "";

  update("budgets", [now.budgets, Math.floor(time / 60000)], () =>
    now.budgets.length ? now.budgets.map((budget) => budgetCard(budget, time)) : [element("p", emptyBudgets(now), { class: "quiet" })],
  );
  showRequests(now);
  showHours(now.hours);
  update("clients", now.top_clients, () => now.top_clients.map(clientRow));
  update("feed", now.events, () => now.events.map(eventLine));
  showSetup(now);
}

function headline(budget) {
  return `${usd(Number(budget.limit_usd) - Number(budget.remaining_usd))} of ${usd(budget.limit_usd)}`;
}

function emptyBudgets(now) {
  return now.ledger.healthy && now.numbers_age_seconds !== null ? "No budget: spending is not limited." : "The ledger has not answered yet.";
}

function showMode(now) {
  if (!now.ledger.healthy) setMode("ledger down", "alarm");
  else if (paused) setMode("paused", "alarm");
  else if (now.mode === "observe") setMode("observing", "wary");
  else setMode("enforcing", "");
}

function setMode(text, kind) {
  if ($("mode").textContent !== text) $("mode").textContent = text;
  $("mode").className = `pill ${kind}`;
}

/** What somebody should do something about, the most urgent first: kind, text, command. */
function warnings(now) {
  const found = [];
  if (!now.ledger.healthy) {
    const age = now.numbers_age_seconds;
    const last = age === null ? "" : ` The budgets below are ${age} s old.`;
    found.push(["alarm", `The ${now.ledger.kind} ledger does not answer. Guarded requests get 503 until it does; nothing is spent.${last}`]);
  }
  if (paused) found.push(["alarm", `Paused: new requests get 503, running streams go on. ${scope(now.ledger)}`]);
  if (now.mode === "observe") found.push(["wary", `Observing: nothing is refused, and money is not protected. ${count(now.would_reject).toLocaleString("en")} requests would have been refused.`]);
  if (!now.open && !paused && now.mode === "enforce") found.push(["alarm", "The budget is spent: what is left does not cover the smallest call. Requests are refused until it resets."]);
  const orphans = amounts(now.budgets, "orphaned_usd");
  const overruns = amounts(now.budgets, "overrun_usd");
  if (orphans) found.push(orphaned(orphans, now.ledger));
  if (overruns) found.push(overrun(overruns, now.ledger));
  if (now.unusable_reports) found.push(["wary", `${now.unusable_reports} reports of usage could not be used; their calls count at their worst case. The log says why.`]);
  return found;
}

function scope(ledger) {
  return { process: "It holds for this process alone.", host: "It holds for every process of this host.", store: "It holds for every process that shares the store." }[ledger.scope] ?? "";
}

/** "$0.02 of the day budget and $0.03 of the month budget", or nothing. */
function amounts(budgets, part) {
  const some = budgets.filter((budget) => Number(budget[part]));
  return some.map((budget) => `${usd(budget[part])} of the ${budget.name} budget`).join(" and ");
}

function orphaned(orphans, ledger) {
  const text = `Orphaned: ${orphans}. The requests it was reserved for died, and it stays charged until the window ends`;
  if (ledger.kind === "memory") return ["wary", `${text}.`];
  return ["wary", `${text}, or until you settle it. The log line "orphaned" names the reservation:`, "routeguard ledger adjust --reservation ID --settled-usd COST --reason \"provider's invoice\""];
}

function overrun(overruns, ledger) {
  const text = `Spent above what had been reserved: ${overruns}. The log line "overrun" names the setting to raise.`;
  if (ledger.kind === "memory") return ["wary", text];
  return ["wary", `${text} If the provider's invoice says otherwise:`, "routeguard ledger adjust --budget NAME --usd -DIFFERENCE --reason \"provider's invoice\""];
}

function notices(found) {
  update("notices", found, () =>
    found.map(([kind, text, command]) => element("p", command ? [text, element("code", command)] : text, { class: `notice ${kind}` })),
  );
}

function showRequests(now) {
  const refused = now.mode === "observe" ? now.would_reject : now.requests.rejected;
  $("in-flight").textContent = now.in_flight ?? "–";
  $("admitted").textContent = now.requests.admitted.toLocaleString("en");
  $("refused").textContent = count(refused).toLocaleString("en");
  $("ratio").textContent = now.settle_ratio === null ? "–" : `${Math.round(100 * now.settle_ratio)} %`;
  $("ratio-says").textContent = now.settle_ratio === null ? "" : "of what was reserved is what settled calls cost in the end.";
  update("reasons", refused, () => tally(refused));
  update("endings", now.requests.endings, () => tally(now.requests.endings));
}

function showHours(hours) {
  const charged = hours.map((hour) => Number(hour.charged_usd));
  const refused = hours.map((hour) => hour.refused);
  const sum = charged.reduce((one, other) => one + other, 0);
  const refusals = refused.reduce((one, other) => one + other, 0);
  $("charged-sum").textContent = usd(sum);
  $("refused-sum").textContent = refusals.toLocaleString("en");
  const clock = (at) => new Date(hours[at].starts_at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const ends = [clock(0), clock(12), "now"];
  update("charged-chart", charged, () => [
    barChart(charged, { kind: "charged", label: `Charged in each of the last 24 hours, ${usd(sum)} together`, says: (at) => `${clock(at)}: ${usd(charged[at])}` }),
    axis(...ends),
  ]);
  update("refused-chart", refused, () => [
    barChart(refused, { kind: "refused", label: `Refused in each of the last 24 hours, ${refusals} together`, says: (at) => `${clock(at)}: ${refused[at]}` }),
    axis(...ends),
  ]);
  update("hours", hours, () => hours.map((hour, at) => row([clock(at), hour.admitted, hour.refused, usd(hour.charged_usd)])).reverse());
}

function clientRow(client) {
  return row([client.client, client.admitted, client.rejected, usd(client.spend_usd)], { class: "hash" });
}

function showSetup(now) {
  $("trust").textContent = `by ${now.trusted}`;
  const shares = { process: "counted in each process for itself, forgotten at restart", host: "shared by all processes of this host", store: "shared by every process that reaches the store" }[now.ledger.scope] ?? now.ledger.scope;
  const health = now.ledger.healthy ? "answers" : "does not answer";
  $("ledger").textContent = `${now.ledger.kind}, ${health}, ${shares}; ${now.ledger_errors} errors`;
  $("process").textContent = `${now.process.pid}, since ${new Date(now.process.started_at).toLocaleString()}, routeguard ${now.version}`;
}

function update(id, value, make) {
  const key = JSON.stringify(value);
  if (shown.get(id) === key) return;
  shown.set(id, key);
  $(id).replaceChildren(...make());
}
