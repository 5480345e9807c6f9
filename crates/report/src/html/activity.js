// The activity of threads: slices and events, arranged by thread, and the spelling of their details.

const activity = report.activity ?? null;
const columnsOf = (fields) => Object.fromEntries((fields ?? []).map((field, index) => [field, index]));
const SLICE = columnsOf(activity?.slice_fields);
const EVENT = columnsOf(activity?.event_fields);

// Kinds of slices in lanes, in the order of the legend.
const KINDS = ['task', 'function', 'lock_wait', 'futex_wait', 'stall', 'allocator_call'];
// Kinds of slices in which the thread waits.
const WAITS = ['lock_wait', 'futex_wait', 'stall'];
const KIND_TITLES = { stall: 'memory stall' };
const titleOfKind = (kind) => KIND_TITLES[kind] ?? kind.replaceAll('_', ' ');

// Slices that are nested deeper are not drawn.
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

// Begin and end of the slices in nanoseconds. Arrays of numbers are faster than lists of lists.
const begins = Float64Array.from(activity?.slices ?? [], (slice) => slice[SLICE.begin_ns]);
const ends = Float64Array.from(activity?.slices ?? [], (slice) => slice[SLICE.begin_ns] + slice[SLICE.duration_ns]);

// Arranges slices and events by thread. `rows` has the slices by depth; `items` has the slices and, as `~number`, the events
// by time. Holds of locks need not nest: they are in no row.
function threadsOf({ threads, slices, events }) {
  const lanes = threads.map((thread) => ({ thread, rows: [], items: [], events: [], time: 0, deeper: 0 }));
  let [lane, open] = [null, []];
  slices.forEach((slice, index) => {
    if (slice[SLICE.kind] === 'lock_hold') { return; }
    if (lanes[slice[SLICE.thread]] !== lane) { [lane, open] = [lanes[slice[SLICE.thread]], []]; }
    while (open.length > 0 && ends[open[open.length - 1]] <= begins[index]) { open.pop(); }
    if (open.length === 0) { lane.time += slice[SLICE.duration_ns]; }
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

// Returns the begin and the end of a slice, or the time of an event.
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
const spellLock = ({ name, address }) => name === null ? `futex ${address}` : `${name} (${address})`;

// Returns the name of a slice or an event with its label or its value.
function spellItem(item) {
  const [list, value] = item < 0 ? [activity.events[~item], EVENT.value] : [activity.slices[item], SLICE.label];
  const name = activity.names[list[item < 0 ? EVENT.name : SLICE.name]] || '[empty name]';
  const label = list[value];
  if (label === null) { return name; }
  if (item >= 0 && list[SLICE.kind] === 'allocator_call') { return `${name}: ${spellBytes(label)}`; }
  return `${name}: ${typeof label === 'number' ? spellNumber(label) : label}`;
}

// Returns the thread that held the lock when the wait began.
function spellHolder(slice, { pid }) {
  const tid = slice[SLICE.holder_tid];
  const begin = slice[SLICE.begin_ns];
  const ran = (thread) => (thread.start_ns ?? 0) <= begin && begin <= (thread.exit_ns ?? Infinity);
  const holder = activity.threads.find((thread) => thread.pid === pid && thread.tid === tid && ran(thread));
  return holder ? spellThread(holder) : `thread ${tid}`;
}

// Returns the details of a slice or an event: pairs of a title and a text.
function detailsOf(item) {
  if (item < 0) {
    const event = activity.events[~item];
    return [['event', spellItem(item)], ['thread', spellThread(activity.threads[event[EVENT.thread]])], ['at', spellMoment(event[EVENT.at_ns])]];
  }
  const slice = activity.slices[item];
  const thread = activity.threads[slice[SLICE.thread]];
  const known = (field, title, spelled) => slice[SLICE[field]] === null ? [] : [[title, spelled(slice[SLICE[field]])]];
  return [
    [titleOfKind(slice[SLICE.kind]), spellItem(item)],
    ['thread', spellThread(thread)],
    ['duration', `${spellTime(slice[SLICE.duration_ns])}${slice[SLICE.open] ? ', not ended' : ''}`],
    ['begin', spellMoment(slice[SLICE.begin_ns])],
    ...known('cpu_ns', 'CPU time', spellTime),
    ...known('allocated_bytes', 'allocated', spellBytes),
    ...known('lock', 'lock', (lock) => spellLock(activity.locks[lock])),
    ...known('holder_tid', 'held by', () => spellHolder(slice, thread)),
  ];
}

// Returns the functions of the stack of a slice, the innermost first.
function stackOf(item) {
  const stack = item < 0 ? null : activity.slices[item][SLICE.stack];
  return stack === null ? [] : activity.stacks[stack] ?? [];
}
