// Memory over time. A click selects a moment, a drag a window.

const SVG = 'http://www.w3.org/2000/svg';
// Room for labels. Lanes of threads, which have longer ones, have the same axis.
const LEFT = report.activity ? 150 : 80;
const BOTTOM = 22;

class Timeline {
  // `onWindow` is called with the start and the end in seconds, or nothing for the whole trace. It returns a text for the readout.
  constructor(picture, readout, onWindow) {
    Object.assign(this, { picture, readout, onWindow, moments: report.timeline.moments_s, chosen: null, note: '' });
    picture.addEventListener('pointerdown', (event) => this.onDown(event));
    picture.addEventListener('pointermove', (event) => this.onMove(event));
    picture.addEventListener('pointerup', (event) => this.onUp(event));
    picture.addEventListener('pointercancel', () => { this.start = undefined; });
    picture.addEventListener('keydown', (event) => this.onKey(event));
    window.addEventListener('resize', () => this.draw());
  }

  show(series) {
    this.series = series;
    this.draw();
  }

  get span() { return report.activity ? wholeTime().map((ns) => ns / 1e9) : [this.moments[0], this.moments[this.moments.length - 1]]; }

  // Returns the live bytes and the resident set size at a moment.
  valuesAt(index) {
    const value = (name) => this.series[name]?.[index] ?? null;
    const parts = RSS.map(value).filter((part) => part !== null);
    return { live: value('live_bytes'), rss: parts.length > 0 ? parts.reduce((sum, part) => sum + part, 0) : null };
  }

  draw() {
    const { width, height } = this.picture.getBoundingClientRect();
    const [first, last] = this.span;
    const values = this.moments.map((_, index) => this.valuesAt(index));
    const most = Math.max(1, ...values.flatMap(({ live, rss }) => [live ?? 0, rss ?? 0]));
    this.x = (time) => LEFT + (width - LEFT - 8) * (last > first ? (time - first) / (last - first) : 0);
    const y = (value) => 8 + (height - BOTTOM - 8) * (1 - value / most);
    const shapes = [];
    for (let part = 0; part <= 4; part += 1) {
      const value = most * part / 4;
      shapes.push(shape('line', { class: 'grid', x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }));
      shapes.push(shape('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, spellBytes(Math.round(value))));
      const time = first + (last - first) * part / 4;
      shapes.push(shape('text', { x: this.x(time), y: height - 6, 'text-anchor': part === 4 ? 'end' : 'middle' }, `${+time.toFixed(1)} s`));
    }
    for (const name of ['rss', 'live']) {
      const known = values.map((value, index) => [this.moments[index], value[name]]).filter(([, value]) => value !== null);
      const points = known.map(([time, value]) => `${this.x(time)},${y(value)}`).join(' ');
      shapes.push(shape('polyline', { class: name, points }));
    }
    for (const { at_s: at, text } of report.timeline.marks) {
      shapes.push(shape('line', { class: 'mark', x1: this.x(at), x2: this.x(at), y1: 8, y2: height - BOTTOM }));
      shapes.push(shape('text', { x: this.x(at) + 3, y: 18 }, text));
    }
    if (this.chosen) {
      const [from, to] = this.chosen.map((index) => this.x(this.moments[index]));
      shapes.push(shape('rect', { class: 'chosen', x: from, width: Math.max(to - from, 1), y: 8, height: height - BOTTOM - 8 }));
    }
    this.picture.replaceChildren(...shapes);
    this.updateReadout();
  }

  updateReadout() {
    const spelled = (value) => value === null ? 'unknown' : spellBytes(value);
    const at = (index) => {
      const { live, rss } = this.valuesAt(index);
      return `${+this.moments[index].toFixed(3)} s: live ${spelled(live)}, RSS ${spelled(rss)}`;
    };
    const [from, to] = this.chosen ?? [this.moments.length - 1, this.moments.length - 1];
    let text = at(to);
    if (from !== to) {
      const [before, after] = [this.valuesAt(from), this.valuesAt(to)];
      const change = (name) => before[name] === null || after[name] === null ? 'unknown' : spellBytes(after[name] - before[name]);
      text = `${at(from)} → ${at(to)}; change: live ${change('live')}, RSS ${change('rss')}`;
    }
    this.readout.textContent = text + this.note;
    const values = { 'aria-valuemin': this.span[0], 'aria-valuemax': this.span[1], 'aria-valuenow': this.moments[to], 'aria-valuetext': text };
    for (const [name, value] of Object.entries(values)) { this.picture.setAttribute(name, value); }
  }

  choose(one, other) {
    this.chosen = one === null ? null : [Math.min(one, other), Math.max(one, other)];
    this.draw();
    const [from, to] = this.chosen ?? [0, 0];
    const hadWindow = this.hasWindow;
    this.hasWindow = from !== to;
    // Between two moments without a window, the flame graph does not change.
    if (this.hasWindow || hadWindow) { this.note = this.onWindow(...(this.hasWindow ? [this.moments[from], this.moments[to]] : [])); }
    this.updateReadout();
  }

  // Selects the moments next to two times in seconds.
  chooseTimes(from, to) { this.choose(this.nearestTo(this.x(from)), this.nearestTo(this.x(to))); }

  nearest(event) { return this.nearestTo(event.clientX - this.picture.getBoundingClientRect().left); }

  nearestTo(x) {
    let best = 0;
    this.moments.forEach((time, index) => {
      if (Math.abs(this.x(time) - x) < Math.abs(this.x(this.moments[best]) - x)) { best = index; }
    });
    return best;
  }

  onDown(event) {
    this.start = this.nearest(event);
    this.picture.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    if (this.start !== undefined) {
      const end = this.nearest(event);
      this.chosen = [Math.min(this.start, end), Math.max(this.start, end)];
      this.draw();
    }
  }

  onUp(event) {
    if (this.start !== undefined) { this.choose(this.start, this.nearest(event)); }
    this.start = undefined;
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') { return this.choose(null); }
    if (step === undefined) { return; }
    event.preventDefault();
    const [from, to] = this.chosen ?? [this.moments.length - 1, this.moments.length - 1];
    const moved = (index) => Math.min(Math.max(index + step, 0), this.moments.length - 1);
    this.choose(event.shiftKey ? from : moved(to), moved(to));
  }
}

function shape(name, attributes, text) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) { created.setAttribute(key, value); }
  if (text !== undefined) { created.textContent = text; }
  return created;
}
