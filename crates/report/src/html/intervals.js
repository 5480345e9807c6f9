// Intervals of estimates from sampled blocks, as the text and the picture have them. Exact numbers have none.

// Number of standard deviations: 95 % of the intervals contain the true number.
const DEVIATIONS = 1.96;
// With fewer samples, both ends of an interval are shown.
const SYMMETRIC = 30;
const NO_SAMPLES = { number: 0, amount: 0, variance: 0 };
// Keys of the numbers of samples.
const NUMBERS = { live: 'samples', exit: 'samples', alloc: 'alloc_samples', free: 'free_samples' };

// Returns the fields whose samples determine the error of a field.
function samplingFields(field) {
  const [kind, unit] = field.split('_');
  // Blocks at the peak can have been freed, so only the error of all allocated blocks is known.
  if (kind === 'peak') { return ['alloc_bytes']; }
  if (!report.window || (kind !== 'live' && kind !== 'exit')) { return [field]; }
  // Live blocks that were allocated between two marks are a part of all blocks that were allocated between them. Another change
  // consists of the allocated blocks and of the freed ones.
  return report.metric === 'growth' && kind === 'live' ? [`alloc_${unit}`] : [`alloc_${unit}`, `free_${unit}`];
}

// Returns the samples of a number of a stack: how many there are, their sum and its variance.
function samplesOf(item, field) {
  return samplingFields(field).map((one) => samplesOfTotal(item, one)).reduce((sum, one) => ({
    number: sum.number + one.number, amount: sum.amount + one.amount, variance: sum.variance + one.variance,
  }));
}

// Returns the samples of a number that is not a change. The product of the distances from the number to the ends of its interval
// is the variance times the square of the deviations. The distances are rounded up, by half on average.
function samplesOfTotal(item, field) {
  const [low, high] = [item[`${field}_low`], item[`${field}_high`]];
  if (low === undefined || high === undefined) { return NO_SAMPLES; }
  const [kind, unit] = field.split('_');
  const value = item[field];
  const distance = (rounded) => Math.max(rounded - 0.5, 0);
  // With an age filter, a number has the error of all blocks that are not freed.
  const isPart = report.older_s !== null && (kind === 'live' || kind === 'exit');
  return {
    number: item[NUMBERS[kind]] ?? 0,
    amount: isPart ? item[`alloc_${unit}`] - item[`free_${unit}`] : value,
    variance: distance(value - low) * distance(high - value) / DEVIATIONS ** 2,
  };
}

// Returns the number of samples in a number of a stack, a process or the report.
function numberOfSamples(item, field) {
  const [kind] = field.split('_');
  if (item !== report.totals || (kind !== 'live' && kind !== 'exit')) { return samplesOf(item, field).number; }
  // The report has the samples of live memory and of memory held at exit together.
  const hasExit = (stack) => stack.exit_bytes !== 0 || stack.exit_count !== 0;
  const isOf = (stack) => kind === 'exit' ? hasExit(stack) : !hasExit(stack) || stack.live_bytes !== 0 || stack.live_count !== 0;
  return report.stacks.filter(isOf).reduce((sum, stack) => sum + samplesOf(stack, field).number, 0);
}

// Returns the distances to the ends of the score interval of a sum of samples.
function marginOf({ amount, variance }) {
  const unit = Math.min(variance / Math.max(amount, 1), Math.sqrt(variance));
  const half = DEVIATIONS * unit / 2;
  const root = Math.sqrt(variance + half * half);
  return { below: Math.ceil(DEVIATIONS * (root - half)), above: Math.ceil(DEVIATIONS * (root + half)) };
}

// Returns an interval, after a blank, as `plus or minus 1.20 MiB` or `(3.10 to 7.80 MiB)`. `number` is the number of samples.
function spellMargin(value, { below, above }, number, kind) {
  if (number >= SYMMETRIC || below === above) { return ` \u00b1 ${spell(Math.floor((below + above) / 2), kind)}`; }
  const [low, high] = [spell(Math.max(value - below, 0), kind), spell(value + above, kind)];
  const [digits, unit] = low.split(' ');
  // A unit that both ends have is not repeated.
  return unit !== undefined && unit === high.split(' ')[1] ? ` (${digits} to ${high})` : ` (${low} to ${high})`;
}

// Returns the interval of a sum of stacks.
function spellInterval(value, samples, kind) {
  if (samples.number === 0 || samples.variance === 0) { return ''; }
  return spellMargin(value, marginOf(samples), samples.number, kind);
}

// Returns a number of a stack, a process or the report with the interval that the report has.
function spellEstimate(item, { field, kind }) {
  const value = item[field] ?? 0;
  const [low, high] = [item[`${field}_low`], item[`${field}_high`]];
  if (low === undefined || high === undefined || low === high) { return spell(value, kind); }
  const number = numberOfSamples(item, field);
  // A lower end of 0 can be nearer to the number than the samples say.
  const margin = low === 0 && number > 0 ? marginOf(samplesOf(item, field)) : { below: value - low, above: high - value };
  return spell(value, kind) + spellMargin(value, margin, number, kind);
}
