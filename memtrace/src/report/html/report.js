// The report, and the spelling of its numbers and names. Text of the target is shown as text content only.

// Control characters and marks of text direction are replaced, as in all formats.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;

const report = JSON.parse(document.getElementById('report').textContent, (key, value) =>
  typeof value === 'string' ? value.replace(CONTROL, '\ufffd') : value);

// Fields of the metrics, with their titles and the kind of their values.
const METRICS = [
  ['live_bytes', 'live bytes', 'bytes'], ['live_count', 'live blocks', 'count'],
  ['exit_bytes', 'bytes held at exit', 'bytes'], ['exit_count', 'blocks held at exit', 'count'],
  ['alloc_bytes', 'allocated bytes', 'bytes'], ['alloc_count', 'allocated blocks', 'count'],
  ['free_bytes', 'freed bytes', 'bytes'], ['temporary_count', 'temporary blocks', 'count'],
  ['peak_bytes', 'bytes at the peak', 'bytes'], ['hot_bytes', 'touched live bytes', 'bytes'],
  ['cold_bytes', 'untouched live bytes', 'bytes'], ['stall_ns', 'time stalled', 'ns'], ['stall_count', 'stalls', 'count'],
].map(([field, title, kind]) => ({ field, title, kind, value: (stack) => Math.max(stack[field] ?? 0, 0) }))
  .filter((metric) => report.stacks.some((stack) => (stack[metric.field] ?? 0) !== 0));

// Returns the metric that the report draws.
function defaultMetric() {
  const names = { 'net-growth': 'live_bytes', growth: 'live_bytes', temporary: 'temporary_count', 'stall-time': 'stall_ns' };
  const field = names[report.metric] ?? report.metric.replaceAll('-', '_');
  return METRICS.find((metric) => metric.field === field) ?? METRICS[0];
}

function spellBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let [value, unit] = [Math.abs(bytes), 0];
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  return `${bytes < 0 ? '-' : ''}${unit === 0 ? value : value.toFixed(2)} ${units[unit]}`;
}

function spellTime(ns) {
  const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
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
