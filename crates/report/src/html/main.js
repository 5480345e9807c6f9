// Composition of the page.

const byId = (id) => document.getElementById(id);
const metricOf = () => METRICS[byId('metric').selectedIndex];
let sites;
let flameWindow = null;

function main() {
  document.title = `memtrace: ${report.subject}`;
  byId('title').textContent = `memtrace: ${report.subject}`;
  byId('losses').textContent = `Lost: ${LOST.map(([reason, count]) => `${count} ${reason}`).join(', ') || 'nothing'}.`
    + (report.untraced.count > 0 ? ` Not traced: ${report.untraced.count} processes.` : '')
    + (DEMOTED > 0 ? ` Demoted: ${DEMOTED} processes; their live numbers are lower bounds.` : '');
  byId('rss').textContent = report.rss_note ?? '';
  byId('notes').replaceChildren(...report.notes.map((note) => element('li', {}, note)));
  qualityTable(byId('quality'));
  byId('theme').addEventListener('click', changeTheme);
  document.addEventListener('keydown', onKey);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => main.lanes?.draw());
  if (activity) { showActivity(); }
  if (METRICS.length === 0) {
    byId('summary').textContent = `${activity ? 'No memory was' : 'Nothing was'} recorded in ${report.duration_s.toFixed(1)} s.`;
    return;
  }
  byId('metric').replaceChildren(...METRICS.map((metric) => element('option', {}, metric.title)));
  byId('metric').selectedIndex = METRICS.indexOf(defaultMetric());
  byId('metric').addEventListener('change', showMetric);
  const flame = new FlameGraph(byId('flame'), byId('flame-readout'));
  main.flame = flame;
  byId('search').addEventListener('input', search);
  byId('site-filter').addEventListener('input', () => { sites.filter = byId('site-filter').value; showSites(); });
  byId('more-sites').addEventListener('click', () => { sites.most += 200; showSites(); });
  if (report.timeline?.moments_s.length > 1) { showTimeline(); }
  showMetric();
}

function showMetric() {
  const metric = metricOf();
  const total = report.totals[metric.field];
  const sum = total === undefined ? '' : `${spellEstimate(report.totals, metric)} of ${metric.title} `;
  byId('summary').textContent = `${sum}in ${report.duration_s.toFixed(1)} s, ${report.stacks.length.toLocaleString('en')} stacks.${decrease(metric)}`;
  showFlame();
  sites = siteTable(byId('sites'), metric);
  sites.filter = byId('site-filter').value;
  showSites();
  processTable(byId('processes'), metric).draw();
}

// Returns the sum of the decreases, which the flame graph leaves out.
function decrease(metric) {
  const sum = report.stacks.reduce((sum, stack) => sum + Math.min(stack[metric.field] ?? 0, 0), 0);
  return sum < 0 ? ` Not drawn: a decrease of ${spell(-sum, metric.kind)}.` : '';
}

// Draws the metric, or the growth in the selected window.
function showFlame() {
  const metric = metricOf();
  if (flameWindow === null) {
    main.flame.show(flameTree(metric.value, (stack) => samplesOf(stack, metric.field)), metric.kind);
  } else {
    const [from, to] = flameWindow;
    const growth = (stack) => (stack.live_changes ?? []).slice(from, to).reduce((sum, change) => sum + change, 0);
    main.flame.show(flameTree(growth), 'bytes');
  }
  search();
}

function search() {
  const share = main.flame.search(byId('search').value);
  byId('matched').textContent = share === null ? '' : `${(100 * share).toFixed(2)} % matched`;
}

function showSites() {
  sites.draw();
  byId('site-count').textContent = `${sites.shown.length.toLocaleString('en')} of ${sites.number.toLocaleString('en')} sites`;
  byId('more-sites').hidden = sites.shown.length === sites.number;
}

function showTimeline() {
  byId('timeline-section').hidden = false;
  const timeline = new Timeline(byId('timeline'), byId('timeline-readout'), selectWindow);
  main.timeline = timeline;
  const { processes, total, left_out: leftOut } = report.timeline;
  const names = processes.map((process) => `${process.comm} (${process.pid})`);
  const all = leftOut > 0 ? `all processes (RSS: ${processes.length} of ${processes.length + leftOut})` : 'all processes';
  byId('timeline-process').replaceChildren(...[all, ...names].map((name) => element('option', {}, name)));
  const legend = (name, colour) => {
    const line = element('span', { class: 'legend' });
    line.style.borderColor = `var(--${colour})`;
    return [line, name];
  };
  byId('timeline-legend').append(...legend('live bytes', 'live'), ...legend('resident set size', 'rss'));
  const show = () => timeline.show(processes[byId('timeline-process').selectedIndex - 1] ?? sumOf(total, processes));
  byId('timeline-process').addEventListener('change', show);
  byId('timeline-all').addEventListener('click', () => timeline.choose(null));
  show();
}

// Returns the series of all processes.
function sumOf(total, processes) {
  const sums = { ...total };
  for (const name of RSS) {
    const known = processes.filter((process) => process[name]);
    if (known.length > 0) {
      sums[name] = report.timeline.moments_s.map((_, index) => {
        const values = known.map((process) => process[name][index]).filter((value) => value !== null);
        return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : null;
      });
    }
  }
  return sums;
}

// Shows the threads. They have the window of the memory, and the memory has the moments next to theirs.
function showActivity() {
  byId('lane-keys').hidden = false;
  main.lanes = showLanes((from, to) => {
    main.isOfLanes = true;
    if (from === undefined) { main.timeline?.choose(null); } else { main.timeline?.chooseTimes(from / 1e9, to / 1e9); }
    main.isOfLanes = false;
  });
  showActivityTables();
}

// Draws the growth in the parts of the trace that overlap the window, or the metric without a window.
function selectWindow(from, to) {
  const parts = report.parts ?? [];
  const first = parts.findIndex((part) => part.to_s > from);
  const after = parts.findIndex((part) => part.from_s >= to);
  const last = after < 0 ? parts.length : after;
  flameWindow = from === undefined || first < 0 || last <= first ? null : [first, last];
  showFlame();
  if (main.lanes && !main.isOfLanes) { main.lanes.show(...(from === undefined ? main.lanes.whole : [from * 1e9, to * 1e9])); }
  if (from === undefined) { return ''; }
  return flameWindow === null
    ? '. The flame graph shows the whole trace: the changes of stacks over time are not known.'
    : `. The flame graph shows the growth of live bytes from ${parts[flameWindow[0]].from_s.toFixed(1)} to ${parts[flameWindow[1] - 1].to_s.toFixed(1)} s.`;
}

function changeTheme() {
  const isDark = document.documentElement.dataset.theme === undefined
    ? matchMedia('(prefers-color-scheme: dark)').matches : document.documentElement.dataset.theme === 'dark';
  document.documentElement.dataset.theme = isDark ? 'light' : 'dark';
  main.lanes?.draw();
}

function onKey(event) {
  if (event.target.matches('input, select') || event.ctrlKey || event.metaKey || event.altKey) { return; }
  if (event.key === '/') {
    byId('search').focus();
    event.preventDefault();
  } else if (event.key === 't') {
    changeTheme();
  }
}

main();
