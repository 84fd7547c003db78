// What happened between two polls, in words. The status JSON holds totals; the feed is their differences.

import { count, parts, usd } from "./money.js";

/** Lines of news, oldest first; `prefix` names the guard. Nothing on the first poll. */
export function describeChanges(before, now, prefix = "") {
  if (!before || before.process.started_at !== now.process.started_at) return [];
  const was = parts(before.budgets[0]);
  const is = parts(now.budgets[0]);
  const news = [];
  const say = (text, kind = "") => news.push({ text: prefix + text, kind });

  if (before.paused !== now.paused) say(now.paused ? "paused" : "resumed");
  const admitted = now.requests.admitted - before.requests.admitted;
  if (admitted) say(`${admitted} admitted${is.open > was.open ? `, ${usd(is.open - was.open)} reserved` : ""}`);
  for (const [reason, number] of grown(before.requests.rejected, now.requests.rejected)) {
    say(`${number} refused: ${reason.replaceAll("_", " ")}`, "refused");
  }
  const would = count(now.would_reject) - count(before.would_reject);
  if (would) say(`${would} would have been refused`, "refused");
  for (const [ending, number] of grown(before.requests.endings, now.requests.endings)) {
    const moved = { settled: is.settled - was.settled, kept: is.kept - was.kept }[ending];
    say(`${number} ${ending}${moved > 0 ? ` for ${usd(moved)}` : ""}`);
  }
  if (is.settled < was.settled) say("a new budget window began");
  return news;
}

function grown(before, now) {
  return Object.entries(now).map(([name, number]) => [name, number - (before[name] ?? 0)]).filter(([, number]) => number > 0);
}
