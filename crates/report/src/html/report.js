// The report, and the spelling of its numbers and names. Text of the target is shown as text content only.

// Control characters and marks of text direction are replaced, as in all formats.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;

// Returns a value with its texts cleaned. Faster than a function for `JSON.parse`, which calls it for each number.
function cleaned(value) {
  if (typeof value === 'string') { return value.replace(CONTROL, '\ufffd'); }
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index += 1) { value[index] = cleaned(value[index]); }
  } else if (value !== null && typeof value === 'object') {
    for (const key of Object.keys(value)) { value[key] = cleaned(value[key]); }
  }
  return value;
}

function parsed(id) {
  return cleaned(JSON.parse(document.getElementById(id).textContent));
}

const report = parsed('report');

// Metrics with any value. Decreases between two moments of a recording are not drawn; counters of them can have wrapped.
const METRICS = parsed('metrics')
  .map((metric) => ({ ...metric, value: (stack) => { const value = stack[metric.field] ?? 0; return value > 0 && value < 2 ** 63 ? value : 0; } }))
  .filter((metric) => report.stacks.some((stack) => (stack[metric.field] ?? 0) !== 0));

// Returns the metric that the report draws.
function defaultMetric() {
  return METRICS.find((metric) => metric.is_drawn) ?? METRICS[0];
}

// Counters that add up to the resident set size.
const RSS = ['rss_anon_bytes', 'rss_file_bytes', 'rss_shmem_bytes'];

// Number of processes with blocks that were not followed.
const DEMOTED = report.processes.filter((process) => process.demotion).length;
// Reasons of losses that occurred, with their numbers as text.
const LOST = Object.entries(report.losses).filter(([, count]) => count > 0).map(([reason, count]) => [reason, count.toLocaleString('en')]);

function spellBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let [value, unit] = [Math.abs(bytes), 0];
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  return `${bytes < 0 ? '-' : ''}${unit === 0 ? value : value.toFixed(2)} ${units[unit]}`;
}

function spellTime(ns) {
  const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
  const [size, unit] = units.find(([size]) => ns >= size) ?? [1, 'ns'];
  return `${+(ns / size).toPrecision(4)} ${unit}`;
}

function spell(value, kind) {
  return kind === 'bytes' ? spellBytes(value) : kind === 'ns' ? spellTime(value) : value.toLocaleString('en');
}

// Returns the name of a frame: the function, or its place in the object.
function frameName(frame) {
  if (frame.name !== null) { return frame.name; }
  const object = frame.object?.split('/').pop();
  const hex = (number) => `0x${number.toString(16)}`;
  if (object) { return frame.offset === null ? object : `${object}+${hex(frame.offset)}`; }
  return frame.address === null ? '[unknown]' : `[${hex(frame.address)}]`;
}

function frameSource(frame) {
  const line = frame.line === null ? '' : `:${frame.line}`;
  return frame.file === null ? (frame.object ?? '') : `${frame.file}${line}`;
}

const frameNames = report.frames.map(frameName);

// Returns the names of a stack, the group first.
function namesOf(stack) {
  const names = [report.roots[stack.root].name, ...stack.frames.map((frame) => frameNames[frame])];
  if (stack.merged_stacks) {
    names.push(`[other: ${stack.merged_stacks.toLocaleString('en')} stacks]`);
  } else if (stack.frames.length === 0) {
    names.push(`[no stack: ${stack.end.replaceAll('_', ' ')}]`);
  }
  return names;
}

// Creates an element with attributes and children. Strings become text.
function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) { created.addEventListener(key.slice(2), value); } else { created.setAttribute(key, value); }
  }
  created.append(...children);
  return created;
}
