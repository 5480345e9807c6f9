// The flame graph: callers above the functions that they call. A node can be enlarged to the whole width.

class FlameGraph {
  constructor(container, readout) {
    Object.assign(this, { container, readout, matches: null, kind: 'bytes' });
    container.addEventListener('keydown', (event) => this.onKey(event));
    window.addEventListener('resize', () => this.draw());
  }

  show(tree, kind) {
    Object.assign(this, { tree, kind, zoom: tree, selected: tree });
    this.draw();
  }

  search(text) {
    const wanted = text.toLowerCase();
    this.matches = wanted === '' ? null : (name) => name.toLowerCase().includes(wanted);
    this.draw();
    return this.matches && this.tree.value > 0 ? matchedValue(this.tree, this.matches) / this.tree.value : null;
  }

  draw() {
    if (!this.tree) { return; }
    const width = this.container.clientWidth;
    const frames = [];
    let depth = 0;
    const place = (node, left, share, isOuter) => {
      if (share * width < 1) { return; }
      depth = Math.max(depth, node.depth);
      frames.push(this.frame(node, left, share, isOuter));
      if (isOuter) { return; }
      let offset = left;
      for (const child of sortedChildren(node)) {
        const part = share * child.value / node.value;
        place(child, offset, part, false);
        offset += part;
      }
    };
    for (let outer = this.zoom.parent; outer; outer = outer.parent) { place(outer, 0, 1, true); }
    if (this.tree.value > 0) { place(this.zoom, 0, 1, false); }
    this.container.replaceChildren(...frames);
    this.container.style.height = `${(depth + 1) * 18}px`;
    this.updateReadout(this.selected);
  }

  frame(node, left, share, isOuter) {
    const names = ['frame', isOuter && 'outer', this.matches?.(node.name) && 'match', node === this.selected && 'selected'];
    const created = element('div', {
      class: names.filter(Boolean).join(' '), role: 'treeitem', 'aria-level': node.depth + 1, 'aria-selected': node === this.selected,
      onclick: () => this.enlarge(node), onmouseenter: () => this.updateReadout(node), onmouseleave: () => this.updateReadout(this.selected),
    }, node.name);
    created.title = this.describe(node);
    Object.assign(created.style, {
      left: `${left * 100}%`, width: `${share * 100}%`, top: `${node.depth * 18}px`, background: colourOf(node.name),
    });
    return created;
  }

  enlarge(node) {
    Object.assign(this, { zoom: node, selected: node });
    this.draw();
  }

  describe(node) {
    const share = this.tree.value > 0 ? (100 * node.value / this.tree.value).toFixed(2) : '0';
    return `${node.name}: ${spell(node.value, this.kind)}${spellInterval(node.value, node, this.kind)} (${share} %)`;
  }

  updateReadout(node) { this.readout.textContent = this.describe(node); }

  onKey(event) {
    const siblings = this.selected.parent ? sortedChildren(this.selected.parent) : [this.selected];
    const place = siblings.indexOf(this.selected);
    const next = {
      ArrowUp: this.selected.parent, ArrowDown: sortedChildren(this.selected)[0],
      ArrowLeft: siblings[place - 1], ArrowRight: siblings[place + 1],
    }[event.key];
    if (event.key === 'Enter') {
      this.enlarge(this.selected);
    } else if (event.key === 'Escape') {
      this.enlarge(this.tree);
    } else if (event.key.startsWith('Arrow')) {
      this.selected = next ?? this.selected;
      this.draw();
    } else {
      return;
    }
    event.preventDefault();
  }
}

// Returns a warm colour that depends on the name only.
function colourOf(name) {
  let hash = 0;
  for (const letter of name) { hash = (hash * 31 + letter.codePointAt(0)) >>> 0; }
  return `hsl(${hash % 50 + 10} ${70 + hash % 20}% ${62 + (hash >>> 8) % 14}%)`;
}
