// Intervals of estimates from sampled blocks. Exact numbers have none.

// Number of standard deviations: 95 % of the intervals contain the true number.
const DEVIATIONS = 1.96;
// With fewer samples, both ends of an interval are shown.
const SYMMETRIC = 30;

// Returns the samples of a number of a stack: their sum and its variance. The product of the distances from the number to the
// ends of its interval is the variance times the square of the deviations.
function samplesOf(item, field) {
  const [low, high] = [item[`${field}_low`], item[`${field}_high`]];
  if (low === undefined || high === undefined) { return { amount: 0, variance: 0 }; }
  const value = item[field];
  return { amount: value, variance: (value - low) * (high - value) / DEVIATIONS ** 2 };
}

// Returns the distances to the ends of the score interval of a sum of samples.
function marginOf({ amount, variance }) {
  const half = DEVIATIONS * variance / Math.max(amount, 1) / 2;
  const root = Math.sqrt(variance + half * half);
  return { below: DEVIATIONS * (root - half), above: DEVIATIONS * (root + half) };
}

// Returns an interval, after a blank, as `plus or minus 1.20 MiB` or `(3.10 MiB to 7.80 MiB)`. `number` is the number of samples.
function spellMargin(value, { below, above }, number, kind) {
  const spellWhole = (part) => spell(Math.round(part), kind);
  return number >= SYMMETRIC ? ` \u00b1 ${spellWhole((below + above) / 2)}`
    : ` (${spellWhole(Math.max(value - below, 0))} to ${spellWhole(value + above)})`;
}

// Returns the interval of a sum of stacks. If all samples stand for the same amount, the square of their sum divided by the
// variance is their number.
function spellInterval(value, samples, kind) {
  if (samples.variance <= 0) { return ''; }
  return spellMargin(value, marginOf(samples), samples.amount ** 2 / samples.variance, kind);
}

// Returns a number of a stack or process with the interval that the report has.
function spellEstimate(item, { field, kind }) {
  const value = item[field] ?? 0;
  const [low, high] = [item[`${field}_low`], item[`${field}_high`]];
  if (low === undefined || high === undefined || low === high) { return spell(value, kind); }
  const { variance } = samplesOf(item, field);
  const isHeld = !field.startsWith('alloc') && item.samples !== undefined;
  const number = isHeld ? item.samples : value ** 2 / Math.max(variance, 1);
  return spell(value, kind) + spellMargin(value, { below: value - low, above: high - value }, number, kind);
}
