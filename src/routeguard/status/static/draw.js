// Numbers as people read them, and the pieces of the page. Text from the network only ever becomes text nodes.

/** "$3.42"; two digits that say something where the amount is small: "$0.0031". */
export function usd(amount) {
  const value = Number(amount);
  const size = Math.abs(value);
  const digits = size === 0 || size >= 1 ? 2 : Math.min(9, Math.max(2, 1 - Math.floor(Math.log10(size))));
  return `${value < 0 ? "−" : ""}$${size.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

export function count(byName) {
  return Object.values(byName).reduce((sum, number) => sum + number, 0);
}

export function words(name) {
  return name.replaceAll("_", " ");
}

/** "4 h 12 min, at 02:00". */
export function untilReset(time, now) {
  const minutes = Math.max(0, Math.ceil((Date.parse(time) - now) / 60000));
  const days = Math.floor(minutes / 1440);
  const at = new Date(time);
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (days > 1) return `in ${days} days, on ${at.toLocaleDateString([], { day: "numeric", month: "short" })}, ${clock}`;
  return `in ${Math.floor(minutes / 60)} h ${minutes % 60} min, at ${clock}`;
}

export function element(name, content = [], attributes = {}) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...(Array.isArray(content) ? content : [String(content)]));
  return node;
}

/** A budget: what is gone of what, the bar of its parts, and each part in figures. */
export function budgetCard(budget, now) {
  const parts = ["settled", "open", "kept", "orphaned"].map((name) => [name, budget[`${name}_usd`]]);
  const charged = parts.reduce((sum, [, amount]) => sum + Number(amount), 0);
  const limit = Number(budget.limit_usd);
  const whole = Math.max(limit, charged) || 1;
  const shown = [...parts.filter(([name, amount]) => name !== "orphaned" || Number(amount)), ["left", budget.remaining_usd]];
  const bar = element("div", parts.map(([name]) => element("i", [], { class: name })), {
    class: charged > limit ? "bar over" : "bar",
    role: "img",
    "aria-label": `Of ${usd(limit)}: ${shown.map(([name, amount]) => `${usd(amount)} ${name}`).join(", ")}`,
  });
  parts.forEach(([, amount], at) => (bar.children[at].style.width = `${(100 * Number(amount)) / whole}%`));
  const window = { hour: "this hour", day: "today", week: "this week", month: "this month", total: "in total" }[budget.window];
  const figures = shown.map(([name, amount]) =>
    element("div", [
      element("dt", [element("i", [], { class: name, "aria-hidden": "true" }), name]),
      element("dd", usd(amount), { title: `${amount} USD` }),
    ]),
  );
  const overrun = Number(budget.overrun_usd) ? `${usd(budget.overrun_usd)} of this was above what was reserved for it.` : "";
  return element("article", [
    element("p", [
      element("strong", usd(charged)),
      element("span", `of ${usd(limit)} ${window}`),
      element("span", budget.resets_at ? `resets ${untilReset(budget.resets_at, now)}` : "never resets", { class: "quiet" }),
    ], { class: "headline" }),
    bar,
    element("dl", figures, { class: "parts" }),
    ...(overrun ? [element("p", overrun, { class: "quiet" })] : []),
  ], { class: "budget", "aria-label": `Budget ${budget.name}` });
}

const SVG = "http://www.w3.org/2000/svg";

/** Bars of equal width; the tallest fills the height. */
export function barChart(values, { kind, label, says }) {
  const chart = document.createElementNS(SVG, "svg");
  chart.setAttribute("viewBox", `0 0 ${values.length * 10} 100`);
  chart.setAttribute("preserveAspectRatio", "none");
  chart.setAttribute("class", `chart ${kind}`);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", label);
  const most = Math.max(...values, 0);
  values.forEach((value, at) => {
    const bar = document.createElementNS(SVG, "rect");
    const height = value ? Math.max(3, (100 * value) / most) : 1;
    Object.entries({ x: at * 10 + 1, width: 8, y: 100 - height, height }).forEach(([name, number]) => bar.setAttribute(name, number));
    if (!value) bar.setAttribute("class", "empty");
    const title = document.createElementNS(SVG, "title");
    title.textContent = says(at);
    bar.append(title);
    chart.append(bar);
  });
  return chart;
}

export function axis(...labels) {
  return element("div", labels.map((label) => element("span", label)), { class: "axis", "aria-hidden": "true" });
}

export function tally(counts) {
  const rows = Object.entries(counts).filter(([, number]) => number).sort((one, other) => other[1] - one[1]);
  if (!rows.length) return [element("li", "none yet", { class: "none" })];
  return rows.map(([name, number]) => element("li", [element("span", words(name)), element("b", number.toLocaleString("en"))]));
}

export function row(cells, ...attributes) {
  return element("tr", cells.map((cell, at) => element("td", cell, attributes[at] ?? {})));
}

/** One line of the feed, in words. */
export function eventLine(event) {
  const money = Number(event.usd) ? usd(event.usd) : "";
  const times = event.times > 1 ? `${event.times.toLocaleString("en")} × ` : "";
  const where = event.path ? ` ${event.path}` : "";
  const who = event.client ? ` by ${event.client}` : "";
  const text = {
    admitted: `admitted${where}${who}, ${money || "nothing"} reserved`,
    settled: `settled${where} for ${money || "nothing"}`,
    kept: `kept${where}: ${money || "nothing"} (${words(event.detail)})`,
    released: `released${where} (${words(event.detail)})`,
    overrun: `overrun${where}: ${money} ${event.detail}`,
    rejected: `refused${where}${who}: ${words(event.detail)}`,
    would_reject: `would refuse${where}${who}: ${words(event.detail)}`,
    ledger_error: `the ledger did not answer (${words(event.detail)})`,
  }[event.event];
  const at = new Date(event.at).toLocaleTimeString([], { hour12: false });
  return element("li", [
    element("time", at, { datetime: event.at }),
    element("span", times + (text ?? words(event.event)), { class: event.event }),
  ]);
}
