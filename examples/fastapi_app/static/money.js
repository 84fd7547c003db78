// Money arrives as decimal strings in USD; a float exists only where a number is drawn.

/** "$0.42", and "$0.0031" where two decimals would say nothing. */
export function usd(amount) {
  const value = Number(amount);
  const size = Math.abs(value);
  const digits = size === 0 || size >= 0.1 ? 2 : size >= 0.01 ? 3 : 4;
  return `${value < 0 ? "−" : ""}$${size.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

/** The parts of one budget of the status JSON. What died with its process counts as kept. */
export function parts(budget) {
  const settled = Number(budget.settled_usd);
  const open = Number(budget.open_usd);
  const kept = Number(budget.kept_usd) + Number(budget.orphaned_usd);
  return { settled, open, kept, left: Number(budget.remaining_usd), limit: Number(budget.limit_usd), charged: settled + open + kept };
}

export function count(byReason) {
  return Object.values(byReason).reduce((sum, number) => sum + number, 0);
}
