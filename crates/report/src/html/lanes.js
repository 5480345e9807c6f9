// Threads over time: a lane for each thread, grouped by process. A click selects a span, a drag a window.

const LANES = 24;
const LEAST_WINDOW = 100;

class Lanes {
  // `onWindow` is called with the start and the end in nanoseconds, or nothing for the whole trace.
  constructor(onWindow) {
    Object.assign(this, { onWindow, filter: '', most: LANES, lane: null, item: null });
    this.container = byId('lanes');
    [this.from, this.to] = this.whole = wholeTime();
    const threads = threadsOf(activity);
    this.all = threads.map((thread) => new Lane(thread)).sort((one, other) => other.time - one.time);
    this.ofBox = new Map(this.all.map((lane) => [lane.box, lane]));
    const listen = (name, handler) => this.container.addEventListener(name, (event) => handler.call(this, event));
    listen('pointerdown', this.onDown);
    listen('pointermove', this.onMove);
    listen('pointerup', this.onUp);
    listen('pointercancel', () => this.endDrag());
    listen('pointerleave', () => this.updateReadout());
    listen('keydown', this.onKey);
    byId('lane-filter').addEventListener('input', () => { this.filter = byId('lane-filter').value.toLowerCase(); this.arrange(); });
    byId('more-lanes').addEventListener('click', () => { this.most += LANES; this.arrange(); });
    byId('lanes-all').addEventListener('click', () => this.reset());
    window.addEventListener('resize', () => this.draw());
    this.arrange();
  }

  // Puts the lanes of the busiest threads that match into the page.
  arrange() {
    const matching = this.all.filter((lane) => lane.text.includes(this.filter));
    const byProcess = new Map();
    for (const lane of matching.slice(0, this.most)) {
      const { process, pid } = lane.thread;
      const title = `${process || '[empty name]'} (${pid})`;
      byProcess.set(title, [...byProcess.get(title) ?? [], lane]);
    }
    this.shown = [...byProcess.values()].flat();
    const groups = [...byProcess].flatMap(([title, lanes]) => [element('h3', {}, title), ...lanes.map((lane) => lane.box)]);
    this.container.replaceChildren(...groups);
    const left = matching.length - this.shown.length;
    byId('lane-count').textContent = `${this.shown.length.toLocaleString('en')} of ${this.all.length.toLocaleString('en')} threads`
      + (left > 0 ? `. Hidden: ${left.toLocaleString('en')} with less time in spans.` : '');
    byId('more-lanes').hidden = left === 0;
    if (!this.shown.includes(this.lane)) { this.select(null, null); }
    this.draw();
  }

  draw() {
    this.width = Math.max(this.container.clientWidth - LEFT - 8, 50);
    this.ticks = this.ticksOf();
    this.palette = paletteOf();
    this.shown.forEach((lane) => this.drawLane(lane));
    this.drawAxis();
    this.updateReadout();
  }

  drawLane(lane) { lane.draw(this, this.palette, lane === this.lane ? this.item : null); }

  // Returns the times of the marks of the axis in nanoseconds.
  ticksOf() {
    const least = (this.to - this.from) * 120 / this.width;
    const power = 10 ** Math.floor(Math.log10(least));
    this.step = power * [1, 2, 5, 10].find((factor) => factor * power >= least);
    const first = Math.ceil(this.from / this.step);
    return Array.from({ length: Math.max(Math.floor(this.to / this.step) - first + 1, 0) }, (_, index) => (first + index) * this.step);
  }

  drawAxis() {
    const digits = Math.max(0, Math.ceil(-Math.log10(this.step / 1e9) - 1e-9));
    const labels = this.ticks.map((tick) => {
      const x = LEFT + (tick - this.from) * this.width / (this.to - this.from);
      return shape('text', { x, y: 15, 'text-anchor': x + 40 > LEFT + this.width ? 'end' : 'middle' }, `${(tick / 1e9).toFixed(digits)} s`);
    });
    byId('lane-axis').replaceChildren(...labels);
    const isWhole = this.from === this.whole[0] && this.to === this.whole[1];
    byId('lane-window').textContent = isWhole ? '' : `${spellTime(this.to - this.from)} from ${spellMoment(this.from)}`;
    byId('lanes-all').disabled = isWhole;
  }

  // Shows the time between two moments in nanoseconds.
  show(from, to) {
    const [first, last] = this.whole;
    const length = Math.min(Math.max(to - from, LEAST_WINDOW), last - first);
    this.from = Math.min(Math.max(from, first), last - length);
    this.to = this.from + length;
    this.draw();
  }

  zoom(from, to) {
    this.show(from, to);
    const isWhole = this.from === this.whole[0] && this.to === this.whole[1];
    this.onWindow(...(isWhole ? [] : [this.from, this.to]));
  }

  // Doubles or halves the shown time around the selected span, or around its middle.
  scale(factor) {
    const middle = this.item === null ? (this.from + this.to) / 2 : (beginOf(this.item) + endOf(this.item)) / 2;
    const half = (this.to - this.from) * factor / 2;
    this.zoom(middle - half, middle + half);
  }

  reset() {
    this.select(null, null);
    this.zoom(...this.whole);
  }

  select(lane, item) {
    const before = this.lane;
    Object.assign(this, { lane, item, time: item === null ? this.from : beginOf(item) });
    for (const one of new Set([before, lane])) {
      if (one?.view) { this.drawLane(one); }
    }
    byId('lane-details').hidden = true;
    this.updateReadout();
  }

  describe(item) {
    const [[kind, name], ...rest] = detailsOf(item);
    const stack = stackOf(item).slice(0, 3).join(' < ');
    return [`${kind} ${name}`, ...rest.map(([title, text]) => `${title} ${text}`), ...(stack ? [`in ${stack}`] : [])].join(', ');
  }

  updateReadout(item = this.item) {
    byId('lane-readout').textContent = item !== null ? this.describe(item)
      : this.lane ? `${spellThread(this.lane.thread)}: nothing in the shown time` : 'Point to a span, or select one with the arrow keys.';
  }

  showDetails() {
    const terms = detailsOf(this.item).flatMap(([title, text]) => [element('dt', {}, title), element('dd', {}, text)]);
    const stack = stackOf(this.item).map((name) => element('li', {}, name));
    const margin = Math.max((endOf(this.item) - beginOf(this.item)) * 0.1, LEAST_WINDOW);
    const zoom = () => this.zoom(beginOf(this.item) - margin, endOf(this.item) + margin);
    byId('lane-details').replaceChildren(
      element('div', { class: 'bar' }, element('button', { type: 'button', onclick: zoom }, 'Zoom to it'),
        element('button', { type: 'button', onclick: () => { byId('lane-details').hidden = true; this.container.focus(); } }, 'Close')),
      element('dl', {}, ...terms), ...(stack.length > 0 ? [element('ol', { class: 'stack' }, ...stack)] : []));
    byId('lane-details').hidden = false;
  }

  // Returns the lane, the place and the item at which an event points.
  pointed(event) {
    const lane = this.ofBox.get(event.target.closest('.lane'));
    const left = this.container.getBoundingClientRect().left + this.container.clientLeft + LEFT;
    const x = event.clientX - left;
    const isIn = lane && x >= 0 && x <= this.width;
    return { lane, x, item: isIn ? lane.itemAt(x, event.clientY - lane.canvas.getBoundingClientRect().top) : null };
  }

  onDown(event) {
    if (event.button !== 0) { return; }
    const start = this.pointed(event);
    if (start.lane && start.x >= 0) { this.start = start; }
  }

  onMove(event) {
    const { x, item } = this.pointed(event);
    if (!this.start) { return this.updateReadout(item ?? this.item); }
    if (!this.isDrag && Math.abs(x - this.start.x) < 4) { return; }
    if (!this.isDrag) { this.container.setPointerCapture(event.pointerId); }
    this.isDrag = true;
    const [left, right] = this.dragged(x);
    Object.assign(byId('lane-chosen').style, { left: `${LEFT + this.container.clientLeft + left}px`, width: `${right - left}px` });
    byId('lane-chosen').hidden = false;
    const time = (place) => this.from + place * (this.to - this.from) / this.width;
    byId('lane-readout').textContent = `${spellTime(time(right) - time(left))} from ${spellMoment(time(left))}`;
  }

  dragged(x) {
    const end = Math.min(Math.max(x, 0), this.width);
    return [Math.min(this.start.x, end), Math.max(this.start.x, end)];
  }

  onUp(event) {
    const { start, isDrag } = this;
    if (!start) { return; }
    const [left, right] = this.dragged(this.pointed(event).x);
    this.endDrag();
    if (isDrag) {
      const scale = (this.to - this.from) / this.width;
      this.zoom(this.from + left * scale, this.from + right * scale);
    } else {
      this.select(start.lane, start.item);
      if (start.item !== null) { this.showDetails(); }
    }
  }

  endDrag() {
    Object.assign(this, { start: undefined, isDrag: false });
    byId('lane-chosen').hidden = true;
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (step !== undefined) {
      this.selectBeside(step);
    } else if (move !== undefined) {
      this.selectLane(move);
    } else if (event.key === 'Home' || event.key === 'End') {
      this.selectItem(this.lane ?? this.shown[0], (items) => event.key === 'Home' ? items[0] : items[items.length - 1]);
    } else if (event.key === 'Enter') {
      if (this.item !== null) { this.showDetails(); }
    } else if (event.key === 'Escape') {
      this.reset();
    } else if (event.key === '+' || event.key === '=') {
      this.scale(0.5);
    } else if (event.key === '-') {
      this.scale(2);
    } else {
      return;
    }
    event.preventDefault();
  }

  selectItem(lane, choose) {
    if (!lane) { return; }
    this.select(lane, choose(lane.itemsIn(this)) ?? null);
    lane.box.scrollIntoView({ block: 'nearest' });
  }

  // Selects the next or the previous span or event of the lane in the shown time.
  selectBeside(step) {
    this.selectItem(this.lane ?? this.shown[0], (items) => {
      const place = items.indexOf(this.item);
      return place < 0 ? items[0] : items[Math.min(Math.max(place + step, 0), items.length - 1)];
    });
  }

  // Selects, in the next or the previous lane, the last span or event that began before the one selected first.
  selectLane(move) {
    const place = this.shown.indexOf(this.lane);
    const lane = place < 0 ? this.shown[0] : this.shown[Math.min(Math.max(place + move, 0), this.shown.length - 1)];
    const time = this.time ?? this.from;
    this.selectItem(lane, (items) => items[Math.max(firstFrom(items, (item) => beginOf(item) > time) - 1, 0)]);
    this.time = time;
  }
}

// Shows the section of the lanes. `onWindow` is that of the lanes.
function showLanes(onWindow) {
  byId('lanes-section').hidden = false;
  const kinds = [...new Set(activity.spans.map((span) => span[SPAN.kind]))].filter((kind) => kind !== 'lock_hold')
    .sort((one, other) => KINDS.indexOf(one) - KINDS.indexOf(other));
  byId('lane-legend').append(...kinds.flatMap((kind) => {
    const swatch = element('span', { class: WAITS.includes(kind) ? 'swatch wait' : 'swatch' });
    swatch.style.setProperty('--kind', `var(--kind-${kind}, var(--muted))`);
    return [swatch, titleOfKind(kind)];
  }), element('span', { class: 'ticks' }, '▼'), 'event', element('span', { class: 'muted ticks' }, '▶ ◀'), 'start and exit of the thread');
  const lanes = new Lanes(onWindow);
  byId('lane-note').textContent = missingSpans(lanes.all.reduce((sum, lane) => sum + lane.deeper, 0));
  return lanes;
}

// Returns a text about spans with lost ends, and about spans and events that the lanes lack. `deeper` is the number of spans without a row.
function missingSpans(deeper) {
  const { spans, events, shorter_than_ns: shorter } = activity.left_out;
  const number = (count, noun) => count > 0 ? [`${count.toLocaleString('en')} ${noun}`] : [];
  const missing = [...number(spans, `spans shorter than ${spellTime(shorter ?? 0)}`), ...number(events, 'events at the end')];
  const sumOf = (field) => activity.totals.reduce((sum, row) => sum + row[field], 0);
  const [lost, lacking] = [sumOf('lost_ends'), sumOf('missing')];
  return (lost > 0 ? `Spans with lost ends: ${lost.toLocaleString('en')}. They are drawn up to the last record of their thread before the loss, and may have lasted longer. ` : '')
    + (lacking > 0 ? `Spans that are missing because of lost records: ${lacking.toLocaleString('en')}. ` : '')
    + (missing.length > 0 ? `Left out to save memory: ${missing.join(' and ')}. The tables include these spans. ` : '')
    + (deeper > 0 ? `Not drawn: ${deeper.toLocaleString('en')} spans inside more than ${MOST_ROWS - 1} others.` : '');
}
