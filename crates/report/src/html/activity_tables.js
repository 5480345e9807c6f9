// Tables of the totals of spans, locks and calls of allocator functions.

// Maximum number of characters of the name of a function in a table.
const MOST_OF_NAME = 80;

// Returns a column of numbers. Unknown values are `null`.
function numberColumn(title, field, kind) {
  return { title, value: (row) => row.item[field] ?? -1, cell: (row) => row.item[field] === null ? 'unknown' : spell(row.item[field], kind) };
}

function textColumn(title, value) {
  return { title, isText: true, value, cell: value };
}

function averageColumn(time, count) {
  const value = ({ item }) => item[count] > 0 ? item[time] / item[count] : 0;
  return { title: 'average', value, cell: (row) => spellTime(Math.round(value(row))) };
}

// Shows a section with a table, and a button if it has more rows than it shows.
function showTable(id, columns, items, by) {
  if (items.length === 0) { return; }
  byId(`${id}-section`).hidden = false;
  const rows = items.map((item) => ({ item, text: '' }));
  const table = new SortedTable(byId(id), columns, rows, { most: 50, by });
  const more = byId(`more-${id}`);
  const draw = () => {
    table.draw();
    more.hidden = table.shown.length === table.number;
  };
  more.addEventListener('click', () => { table.most += 200; draw(); });
  draw();
}

function showActivityTables() {
  const { totals, locks, calls } = activity;
  const hasBytes = totals.some((row) => row.allocated_bytes !== null);
  const processes = new Map(activity.threads.map((thread) => [thread.pid, thread.process]));
  const named = (name) => (row) => row.item[name] || '[empty name]';
  const spanName = named('name');
  // The names of functions can have hundreds of characters.
  const shortSpanName = (row) => row.item.kind === 'function'
    ? element('span', { title: spanName(row) }, shortenName(spanName(row), MOST_OF_NAME)) : spanName(row);
  showTable('spans', [
    numberColumn('spans', 'count', 'count'), numberColumn('time', 'time_ns', 'ns'), averageColumn('time_ns', 'count'),
    numberColumn('longest', 'longest_ns', 'ns'), numberColumn('CPU time', 'cpu_ns', 'ns'),
    ...(hasBytes ? [numberColumn('allocated', 'allocated_bytes', 'bytes')] : []),
    textColumn('kind', (row) => titleOfKind(row.item.kind)), { title: 'name', isText: true, value: spanName, cell: shortSpanName },
  ], totals.filter((row) => row.count > 0), 1);
  showTable('locks', [
    numberColumn('waits', 'waits', 'count'), numberColumn('waiting', 'wait_ns', 'ns'), numberColumn('longest wait', 'longest_wait_ns', 'ns'),
    numberColumn('most waiters', 'most_waiters', 'count'), numberColumn('holds', 'holds', 'count'), numberColumn('held', 'hold_ns', 'ns'),
    numberColumn('longest hold', 'longest_hold_ns', 'ns'),
    textColumn('process', (row) => `${processes.get(row.item.pid) || '[empty name]'} (${row.item.pid})`), textColumn('kind', (row) => row.item.class), textColumn('lock', (row) => spellLock(row.item)),
  ], locks, 1);
  showTable('calls', [
    numberColumn('calls', 'count', 'count'), numberColumn('time', 'time_ns', 'ns'), averageColumn('time_ns', 'count'),
    boundColumn('half below', 0.5), boundColumn('99 % below', 0.99), histogramColumn(calls), textColumn('function', named('function')),
  ], calls, 1);
}

// Returns the end of a bucket in nanoseconds.
const endOfBucket = (from) => from === 0 ? 2 : 2 * from;

// Returns a column with the end of the bucket in which a share of the calls is reached.
function boundColumn(title, share) {
  const value = ({ item }) => {
    let rest = share * item.count;
    const bucket = item.histogram.find(({ count }) => (rest -= count) <= 0) ?? item.histogram[item.histogram.length - 1];
    return bucket ? endOfBucket(bucket.from_ns) : 0;
  };
  return { title, value, cell: (row) => value(row) === 0 ? 'unknown' : spellTime(value(row)) };
}

// Returns a column of histograms, which have the same axis. The heights of their bars are logarithmic.
function histogramColumn(calls) {
  const place = (from) => from === 0 ? 0 : Math.log2(from);
  const places = calls.flatMap((call) => call.histogram.map((bucket) => place(bucket.from_ns)));
  const [first, last] = [Math.min(...places, 63), Math.max(...places, 0)];
  const range = places.length > 0 ? `, ${spellTime(2 ** first)} to ${spellTime(2 ** (last + 1))}` : '';
  const cell = ({ item }) => {
    const most = Math.max(...item.histogram.map((bucket) => bucket.count), 1);
    const text = ({ from_ns: from, count }) => `${spellTime(from)} to ${spellTime(endOfBucket(from))}: ${count.toLocaleString('en')}`;
    const bars = item.histogram.map((bucket) => {
      const height = 2 + 20 * Math.log2(bucket.count + 1) / Math.log2(most + 1);
      const bar = shape('rect', { x: 8 * (place(bucket.from_ns) - first), y: 22 - height, width: 7, height });
      bar.append(shape('title', {}, text(bucket)));
      return bar;
    });
    const picture = shape('svg', {
      class: 'histogram', role: 'img', width: 8 * (last - first + 1), height: 22, 'aria-label': item.histogram.map(text).join(', '),
    });
    picture.append(...bars);
    return picture;
  };
  return { title: `durations${range}`, isText: true, value: ({ item }) => item.count, cell };
}
