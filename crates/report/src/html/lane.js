// The lane of a thread: its spans as nested boxes, and its events, start and exit as marks above them.

const LANE_ROW = 16;
const LANE_STRIP = 10;
// Narrower spans are merged: each column of pixels has the colour of the kind that takes most of its time.
const LEAST_BOX = 1.5;

// Returns a colour of the style sheet for a canvas, to which variables mean nothing.
function resolvedColour(name) {
  const probe = element('span');
  probe.style.color = `var(--${name}, var(--muted))`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

// Returns the colours of a theme. Waits are hatched.
function paletteOf() {
  const palette = { fills: new Map() };
  for (const name of ['text', 'line', 'panel', 'page', 'muted', 'accent', 'event']) { palette[name] = resolvedColour(name); }
  for (const kind of new Set(activity.spans.map((span) => span[SPAN.kind]))) {
    const colour = resolvedColour(`kind-${kind}`);
    palette.fills.set(kind, WAITS.includes(kind) ? hatched(colour, palette.page) : colour);
  }
  return palette;
}

function hatched(colour, background) {
  const tile = element('canvas', { width: 6, height: 6 });
  const picture = tile.getContext('2d');
  picture.fillStyle = colour;
  picture.fillRect(0, 0, 6, 6);
  picture.strokeStyle = background;
  picture.globalAlpha = 0.55;
  picture.lineWidth = 1.5;
  for (const shift of [-6, 0, 6]) {
    picture.moveTo(shift - 1, 7);
    picture.lineTo(shift + 7, -1);
  }
  picture.stroke();
  return picture.createPattern(tile, 'repeat');
}

class Lane {
  constructor({ thread, rows, items, events, time, deeper }) {
    Object.assign(this, { thread, rows, items, events, time, deeper, drawn: 0 });
    this.text = `${thread.name} ${thread.tid} ${thread.process} ${thread.pid}`.toLowerCase();
    this.height = LANE_STRIP + Math.max(rows.length, 1) * LANE_ROW + 2;
    this.canvas = element('canvas');
    const name = element('div', { class: 'lane-name' }, thread.name || '[empty name]', element('span', { class: 'muted' }, ` ${thread.tid}`));
    name.title = `${spellThread(thread)}: ${spellTime(time)} in spans`;
    this.box = element('div', { class: 'lane' }, name, this.canvas);
  }

  // Draws the part of the time from `view.from` to `view.to`.
  draw(view, palette, selected) {
    const { width } = view;
    const ratio = devicePixelRatio;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(this.height * ratio) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height}px` });
    const picture = this.canvas.getContext('2d');
    picture.scale(ratio, ratio);
    picture.font = '11px ui-monospace, monospace';
    picture.textBaseline = 'middle';
    this.letter ??= picture.measureText('0').width;
    Object.assign(this, { picture, view, palette, drawn: 0 });
    this.drawLife();
    this.rows.forEach((row, depth) => this.drawRow(row, LANE_STRIP + depth * LANE_ROW));
    this.drawEvents();
    if (selected !== null) { this.drawSelection(selected); }
  }

  x(time) { return (time - this.view.from) * this.view.width / (this.view.to - this.view.from); }

  // Draws the time in which the thread ran, and the grid.
  drawLife() {
    const { picture, palette, view } = this;
    const { start_ns: start, exit_ns: exit } = this.thread;
    const from = start === null ? 0 : Math.max(this.x(start), 0);
    const to = exit === null ? view.width : Math.min(this.x(exit), view.width);
    picture.fillStyle = palette.panel;
    picture.fillRect(from, 0, Math.max(to - from, 0), this.height - 1);
    picture.fillStyle = palette.line;
    for (const tick of view.ticks) { picture.fillRect(Math.round(this.x(tick)), 0, 1, this.height - 1); }
    picture.fillStyle = palette.muted;
    for (const [time, direction] of [[start, 1], [exit, -1]]) {
      if (time === null || time < view.from || time > view.to) { continue; }
      const x = this.x(time);
      picture.fillRect(x - (direction < 0 ? 1 : 0), 0, 1, this.height - 1);
      this.triangle([[x, 1], [x + 6 * direction, 4.5], [x, 8]]);
    }
  }

  triangle(points) {
    this.picture.beginPath();
    for (const [x, y] of points) { this.picture.lineTo(x, y); }
    this.picture.fill();
  }

  drawRow(row, top) {
    const { from, to } = this.view;
    let column = null;
    const finish = () => {
      if (column) { this.drawColumn(column, top); }
      column = null;
    };
    for (let place = firstFrom(row, (index) => ends[index] >= from); place < row.length; place += 1) {
      const index = row[place];
      if (begins[index] > to) { break; }
      this.drawn += 1;
      const [left, right] = [Math.max(this.x(begins[index]), 0), Math.min(this.x(ends[index]), this.view.width)];
      if (right - left >= LEAST_BOX) {
        finish();
        this.drawBox(index, left, right - left, top);
      } else {
        const x = Math.min(Math.floor(left), Math.floor(this.view.width) - 1);
        if (column?.x !== x) { finish(); }
        column ??= { x, times: new Map() };
        const kind = activity.spans[index][SPAN.kind];
        column.times.set(kind, (column.times.get(kind) ?? 0) + right - left);
      }
    }
    finish();
  }

  drawColumn({ x, times }, top) {
    const { picture } = this;
    const [kind] = [...times].reduce((most, one) => one[1] > most[1] ? one : most);
    const share = [...times.values()].reduce((sum, time) => sum + time, 0);
    picture.globalAlpha = Math.min(0.35 + 0.65 * share, 1);
    picture.fillStyle = this.palette.fills.get(kind);
    picture.fillRect(x, top, 1, LANE_ROW - 1);
    picture.globalAlpha = 1;
  }

  drawBox(index, left, width, top) {
    const { picture, palette } = this;
    const span = activity.spans[index];
    const isWait = WAITS.includes(span[SPAN.kind]);
    const inner = width > 3 ? width - 1 : width;
    picture.fillStyle = palette.fills.get(span[SPAN.kind]);
    picture.fillRect(left, top, inner, LANE_ROW - 1);
    if (!isWait && span[SPAN.name] % 3 > 0) {
      // Neighbours with other names differ a little.
      picture.fillStyle = span[SPAN.name] % 3 === 1 ? 'rgb(255 255 255 / 0.22)' : 'rgb(0 0 0 / 0.1)';
      picture.fillRect(left, top, inner, LANE_ROW - 1);
    }
    if (span[SPAN.open] || span[SPAN.end_lost]) {
      picture.fillStyle = '#1c1c1c';
      for (let y = 0; y < LANE_ROW - 1; y += 4) { picture.fillRect(left + inner - 2, top + y, 2, 2); }
    }
    const most = Math.floor((inner - 6) / this.letter);
    if (most < 3) { return; }
    const name = shortenSpan(index, most);
    const shown = name.length <= most ? name : `${name.slice(0, most - 1).replace(/[\ud800-\udbff]$/, '')}…`;
    if (isWait) {
      // Text on stripes is hard to read.
      picture.fillStyle = 'rgb(255 255 255 / 0.7)';
      picture.fillRect(left + 2, top + 1, Math.min(shown.length * this.letter + 3, inner - 3), LANE_ROW - 3);
    }
    picture.fillStyle = '#1c1c1c';
    picture.fillText(shown, left + 3, top + LANE_ROW / 2, inner - 4);
  }

  drawEvents() {
    const { picture, palette, view } = this;
    picture.fillStyle = palette.event;
    let last = -Infinity;
    for (const index of this.events) {
      const time = beginOf(~index);
      const x = this.x(time);
      if (time < view.from || time > view.to || x - last < 1) { continue; }
      last = x;
      this.triangle([[x - 3.5, 1], [x + 3.5, 1], [x, LANE_STRIP - 1]]);
    }
  }

  drawSelection(item) {
    const { picture, palette } = this;
    const [left, right] = [Math.max(this.x(beginOf(item)), 0), Math.min(this.x(endOf(item)), this.view.width)];
    const depth = this.rows.findIndex((row) => row[firstFrom(row, (index) => index >= item)] === item);
    const [top, height] = depth < 0 ? [1, LANE_STRIP - 2] : [LANE_STRIP + depth * LANE_ROW, LANE_ROW - 1];
    const width = Math.max(right - left, item < 0 ? 0 : 4);
    picture.strokeStyle = palette.text;
    picture.lineWidth = 2;
    picture.strokeRect(left - (item < 0 ? 5 : 0), top, width + (item < 0 ? 10 : 0), height);
  }

  // Returns the span or the event at a place of the canvas; `null` if there is none.
  itemAt(x, y) {
    const { from, to, width } = this.view;
    const time = from + x * (to - from) / width;
    const distance = (item) => Math.max(beginOf(item) - time, time - endOf(item), 0) * width / (to - from);
    const isBefore = (item) => endOf(item) < time;
    const list = y < LANE_STRIP ? this.events.map((index) => ~index) : this.rows[Math.floor((y - LANE_STRIP) / LANE_ROW)] ?? [];
    const next = firstFrom(list, (item) => !isBefore(item));
    const near = [list[next], list[next - 1]].filter((item) => item !== undefined).sort((one, other) => distance(one) - distance(other));
    return near.length > 0 && distance(near[0]) <= (y < LANE_STRIP ? 5 : 2) ? near[0] : null;
  }

  // Returns the spans and events that overlap the shown time.
  itemsIn({ from, to }) {
    return this.items.filter((item) => beginOf(item) <= to && endOf(item) >= from);
  }
}
