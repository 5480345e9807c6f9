// Tables. The first click on a head sorts downwards, the next one upwards.

class SortedTable {
  // A column has a title, a value by which rows are sorted, and the content of its cells.
  constructor(table, columns, rows, options = {}) {
    Object.assign(this, { table, columns, rows, most: options.most ?? Infinity, onRow: options.onRow, by: options.by ?? 0 });
    Object.assign(this, { isAscending: false, filter: '', shown: [] });
  }

  sortBy(column) {
    this.isAscending = this.by === column && !this.isAscending;
    this.by = column;
    this.draw();
  }

  draw() {
    const column = this.columns[this.by];
    const wanted = this.filter.toLowerCase();
    const rows = this.rows.filter((row) => wanted === '' || row.text.toLowerCase().includes(wanted));
    const order = (one, other) => {
      const [first, second] = [column.value(one), column.value(other)];
      return first < second ? -1 : first > second ? 1 : 0;
    };
    rows.sort((one, other) => this.isAscending ? order(one, other) : order(other, one));
    this.number = rows.length;
    this.shown = rows.slice(0, this.most);
    const heads = this.columns.map((head, index) => {
      const sort = index === this.by ? (this.isAscending ? 'ascending' : 'descending') : 'none';
      const arrow = { ascending: ' ▲', descending: ' ▼', none: '' }[sort];
      const button = element('button', { type: 'button', onclick: () => this.sortBy(index) }, head.title + arrow);
      return element('th', { scope: 'col', 'aria-sort': sort, class: head.isText ? 'text' : '' }, button);
    });
    const body = this.shown.map((row) => this.row(row));
    const hadFocus = this.table.querySelector('thead')?.contains(document.activeElement);
    this.table.replaceChildren(element('thead', {}, element('tr', {}, ...heads)), element('tbody', {}, ...body));
    if (hadFocus) { this.table.querySelectorAll('th button')[this.by].focus(); }
  }

  row(row) {
    const cells = this.columns.map((column) => element('td', { class: column.isText ? 'text' : '' }, column.cell(row)));
    if (!this.onRow) { return element('tr', {}, ...cells); }
    const open = (event) => {
      const isSelection = event.type === 'click' && (event.target.closest('ol') || !getSelection().isCollapsed);
      if (!isSelection && (event.type === 'click' || event.key === 'Enter')) {
        this.onRow(row, cells[cells.length - 1]);
        event.currentTarget.setAttribute('aria-expanded', cells[cells.length - 1].querySelector('ol') !== null);
      }
    };
    return element('tr', { class: 'site', tabindex: 0, 'aria-expanded': false, onclick: open, onkeydown: open }, ...cells);
  }
}

function metricColumn(metric) {
  return { title: metric.title, value: (row) => row.item[metric.field] ?? 0, cell: (row) => spellEstimate(row.item, metric) };
}

// Returns the table of the stacks. A row shows its stack on request.
function siteTable(table, metric) {
  siteTable.rows ??= report.stacks.map((item) => {
    const names = namesOf(item);
    return { item, names, text: names.join(' ') };
  });
  const rows = siteTable.rows;
  const columns = [...METRICS.map(metricColumn), {
    title: 'site', isText: true, value: (row) => row.names[row.names.length - 1],
    cell: (row) => row.names.slice(-3).reverse().join(' < '),
  }];
  const show = (row, cell) => {
    if (cell.querySelector('ol')) { return cell.querySelector('ol').remove(); }
    const lines = [...row.item.frames].reverse().map((id) => `${frameNames[id]}  ${frameSource(report.frames[id])}`);
    lines.push(row.names[0]);
    cell.append(element('ol', { class: 'stack' }, ...lines.map((line) => element('li', {}, line))));
  };
  return new SortedTable(table, columns, rows, { most: 50, onRow: show, by: METRICS.indexOf(metric) });
}

// Says from when on which blocks of a process were followed, and the share of its bytes in them.
function describeDemotion(demotion) {
  if (!demotion) { return ''; }
  const since = demotion.demoted_s === null ? '' : ` after ${demotion.demoted_s.toFixed(1)} s`;
  const share = demotion.followed_share === null ? '' : `, ${(100 * demotion.followed_share).toFixed(1)} % of the allocated bytes`;
  return `, demoted${since}: only blocks from ${spellBytes(demotion.min_size_bytes)} on are followed${share}`;
}

function processTable(table, metric) {
  const rows = report.processes.map((process) => ({ item: { ...process, ...process.totals }, text: process.comm }));
  const text = (title, value) => ({ title, isText: true, value, cell: value });
  const name = (row) => row.item.pid === null ? `${row.item.comm} ×${row.item.runs}` : `${row.item.comm} (${row.item.pid})`;
  const columns = [...METRICS.filter((one) => one.field !== 'peak_bytes').map(metricColumn),
    text('state', (row) => (row.item.ended ?? 'running') + describeDemotion(row.item.demotion)), text('user', (row) => row.item.user ?? ''), text('process', name)];
  return new SortedTable(table, columns, rows, { most: 500, by: Math.max(columns.findIndex((column) => column.title === metric.title), 0) });
}

function qualityTable(table) {
  const cost = report.cost;
  const rows = [
    ...LOST.map(([reason, count]) => [`lost: ${reason}`, count]),
    ...Object.entries(report.stack_quality).filter(([, share]) => share > 0).map(([end, share]) => [`stacks: ${end}`, `${(100 * share).toFixed(2)} %`]),
    ['processes that are not traced', report.untraced.count.toLocaleString('en')],
  ];
  if (cost !== null) {
    rows.push(
      ['events', cost.events.toLocaleString('en')],
      ['processor time of memtrace while tracing', `${cost.tracing_cpu_s.toFixed(3)} s`],
      ['memory of memtrace', spellBytes(cost.peak_rss_bytes)],
    );
  }
  if (LOST.length === 0) { rows.unshift(['lost', 'nothing']); }
  if (cost !== null && cost.programs_s !== null) { rows.push(['time of BPF programs in the targets', `${cost.programs_s.toFixed(3)} s`]); }
  table.replaceChildren(...rows.map(([name, value]) => element('tr', {}, element('td', { class: 'text' }, name), element('td', {}, value))));
}
