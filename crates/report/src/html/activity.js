// The activity of threads: spans and events, arranged by thread, and the spelling of their details.

const activity = report.activity ?? null;
const columnsOf = (fields) => Object.fromEntries((fields ?? []).map((field, index) => [field, index]));
const SPAN = columnsOf(activity?.span_fields);
const EVENT = columnsOf(activity?.event_fields);

// Kinds of spans in lanes, in the order of the legend.
const KINDS = ['task', 'function', 'lock_wait', 'futex_wait', 'stall', 'allocator_call'];
// Kinds of spans in which the thread waits.
const WAITS = ['lock_wait', 'futex_wait', 'stall'];
const KIND_TITLES = { stall: 'memory stall' };
const titleOfKind = (kind) => KIND_TITLES[kind] ?? kind.replaceAll('_', ' ');

// Spans that are nested deeper are not drawn.
const MOST_ROWS = 64;

// Returns the number of the first element for which `isFrom` holds. It holds for all later ones.
function firstFrom(list, isFrom) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isFrom(list[middle])) { high = middle; } else { low = middle + 1; }
  }
  return low;
}

// Begin and end of the spans in nanoseconds. Arrays of numbers are faster than lists of lists.
const begins = Float64Array.from(activity?.spans ?? [], (span) => span[SPAN.begin_ns]);
const ends = Float64Array.from(activity?.spans ?? [], (span) => span[SPAN.begin_ns] + span[SPAN.duration_ns]);

// Arranges spans and events by thread. `rows` has the spans by depth; `items` has the spans and, as `~number`, the events
// by time. Holds of locks need not nest: they are in no row.
function threadsOf({ threads, spans, events }) {
  const lanes = threads.map((thread) => ({ thread, rows: [], items: [], events: [], time: 0, deeper: 0 }));
  let [lane, open] = [null, []];
  spans.forEach((span, index) => {
    if (span[SPAN.kind] === 'lock_hold') { return; }
    if (lanes[span[SPAN.thread]] !== lane) { [lane, open] = [lanes[span[SPAN.thread]], []]; }
    while (open.length > 0 && ends[open[open.length - 1]] <= begins[index]) { open.pop(); }
    if (open.length === 0) { lane.time += span[SPAN.duration_ns]; }
    if (open.length < MOST_ROWS) { (lane.rows[open.length] ??= []).push(index); } else { lane.deeper += 1; }
    lane.items.push(index);
    open.push(index);
  });
  events.forEach((event, index) => lanes[event[EVENT.thread]].events.push(index));
  for (const { items, events: own } of lanes) {
    if (own.length > 0) {
      items.push(...own.map((index) => ~index));
      items.sort((one, other) => beginOf(one) - beginOf(other));
    }
  }
  return lanes;
}

// Returns the begin and the end of a span, or the time of an event.
const beginOf = (item) => item < 0 ? activity.events[~item][EVENT.at_ns] : begins[item];
const endOf = (item) => item < 0 ? beginOf(item) : ends[item];

// Returns the time from the start of tracing in nanoseconds that the lanes show.
function wholeTime() {
  if (report.window) { return [report.window.from_s * 1e9, report.window.to_s * 1e9]; }
  const moments = report.timeline?.moments_s ?? [];
  const last = [report.duration_s * 1e9, (moments[moments.length - 1] ?? 0) * 1e9, 1];
  return [0, ends.reduce((most, end) => Math.max(most, end), Math.max(...last))];
}

// Numbers above 2^53 have lost their lowest bits.
function spellNumber(number) {
  return Number.isSafeInteger(number) ? number.toLocaleString('en') : `about ${number.toLocaleString('en')}`;
}

const spellMoment = (ns) => `${+(ns / 1e9).toFixed(9)} s`;
const spellThread = ({ name, tid }) => `${name || '[empty name]'} (${tid})`;

// Returns the name of a lock, or the use or the place of a futex; `null` if it is not known.
function nameOfLock({ pid, name, place, joined_tid: joined }) {
  if (name === null && joined !== null) {
    const thread = activity.threads.find((thread) => thread.pid === pid && thread.tid === joined);
    return `join of ${thread ? spellThread(thread) : `thread ${joined}`}`;
  }
  return name ?? place;
}

function spellLock(lock) {
  const name = nameOfLock(lock);
  return name === null ? `futex ${lock.address}` : `${name} (${lock.address})`;
}

// Returns the name of a function in at most `most` characters: without the arguments of templates, and without its middle if
// this is not enough.
function shortenName(name, most) {
  if (name.length <= most) { return name; }
  const short = withoutTemplateArguments(name) ?? name;
  if (short.length <= most) { return short; }
  const end = Math.floor(Math.max(most - 1, 0) / 2);
  const start = Math.max(most - 1 - end, 0);
  return `${short.slice(0, start).replace(/[\ud800-\udbff]$/, '')}…${short.slice(short.length - end).replace(/^[\udc00-\udfff]/, '')}`;
}

// Replaces the arguments of templates by an ellipsis. The brackets of a Rust type, as in `<Key as Hash>::hash`, are kept.
// Returns `null` if the angle brackets may be those of an operator.
function withoutTemplateArguments(name) {
  if (name.includes('operator')) { return null; }
  // `types`: open brackets of types. `depth`: open brackets of arguments.
  let [types, depth, before, short] = [0, 0, ' ', ''];
  for (const character of name) {
    if (character === '<' && depth === 0 && ' (<,&*['.includes(before)) {
      short += character;
      types += 1;
    } else if (character === '<') {
      if (depth === 0) { short += '<…>'; }
      depth += 1;
    } else if (character === '>' && before !== '-') {
      if (depth > 0) {
        depth -= 1;
      } else {
        short += character;
        types -= 1;
        if (types < 0) { return null; }
      }
    } else if (depth === 0) {
      short += character;
    }
    before = character;
  }
  return types === 0 && depth === 0 ? short : null;
}

// Returns the name of a span with its label in about `most` characters. The name of a function is shortened in its middle.
function shortenSpan(index, most) {
  const [spelled, span] = [spellItem(index), activity.spans[index]];
  if (span[SPAN.kind] !== 'function') { return spelled; }
  const name = activity.names[span[SPAN.name]];
  const label = spelled.slice(name.length);
  return shortenName(name, Math.max(most - label.length, Math.ceil(most / 2))) + label;
}

// Returns the name of a span or an event with its label or its value.
function spellItem(item) {
  const [list, value] = item < 0 ? [activity.events[~item], EVENT.value] : [activity.spans[item], SPAN.label];
  const name = activity.names[list[item < 0 ? EVENT.name : SPAN.name]] || '[empty name]';
  const label = list[value];
  if (label === null) { return name; }
  if (item >= 0 && list[SPAN.kind] === 'allocator_call') { return `${name}: ${spellBytes(label)}`; }
  return `${name}: ${typeof label === 'number' ? spellNumber(label) : label}`;
}

// Returns the thread of a process with this TID that ran when the wait began.
function spellThreadAt(span, { pid }, tid) {
  const begin = span[SPAN.begin_ns];
  const ran = (thread) => (thread.start_ns ?? 0) <= begin && begin <= (thread.exit_ns ?? Infinity);
  const found = activity.threads.find((thread) => thread.pid === pid && thread.tid === tid && ran(thread));
  return found ? spellThread(found) : `thread ${tid}`;
}

function spellDuration(span) {
  const time = spellTime(span[SPAN.duration_ns]);
  if (span[SPAN.end_lost]) { return `at least ${time}, end lost`; }
  return span[SPAN.open] ? `${time}, not ended` : time;
}

// Returns the details of a span or an event: pairs of a title and a text.
function detailsOf(item) {
  if (item < 0) {
    const event = activity.events[~item];
    return [['event', spellItem(item)], ['thread', spellThread(activity.threads[event[EVENT.thread]])], ['at', spellMoment(event[EVENT.at_ns])]];
  }
  const span = activity.spans[item];
  const thread = activity.threads[span[SPAN.thread]];
  const known = (field, title, spelled) => span[SPAN[field]] === null ? [] : [[title, spelled(span[SPAN[field]])]];
  return [
    [titleOfKind(span[SPAN.kind]), spellItem(item)],
    ['thread', spellThread(thread)],
    ['duration', spellDuration(span)],
    ['begin', spellMoment(span[SPAN.begin_ns])],
    ...known('cpu_ns', 'CPU time', spellTime),
    ...known('allocated_bytes', 'allocated', spellBytes),
    ...known('lock', 'lock', (lock) => spellLock(activity.locks[lock])),
    ...known('holder_tid', 'held by', (tid) => spellThreadAt(span, thread, tid)),
    ...known('waker_tid', 'woken by', (tid) => spellThreadAt(span, thread, tid)),
  ];
}

// Returns the functions of the stack of a span, the innermost first.
function stackOf(item) {
  const stack = item < 0 ? null : activity.spans[item][SPAN.stack];
  return stack === null ? [] : activity.stacks[stack] ?? [];
}
