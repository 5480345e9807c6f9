// The tree of a flame graph: stacks with their callers in common.

// Returns the root of the tree. `valueOf` has the value of a stack; stacks without one are left out. `samplesOfStack` has the
// samples of the value.
function flameTree(valueOf, samplesOfStack = () => NO_SAMPLES) {
  const root = { name: 'all', value: 0, ...NO_SAMPLES, children: new Map(), parent: null, depth: 0 };
  for (const stack of report.stacks) {
    const value = valueOf(stack);
    if (value <= 0) { continue; }
    const { number, amount, variance } = samplesOfStack(stack);
    const add = (node) => {
      node.value += value;
      node.number += number;
      node.amount += amount;
      node.variance += variance;
    };
    let node = root;
    add(root);
    for (const name of namesOf(stack)) {
      let child = node.children.get(name);
      if (!child) {
        child = { name, value: 0, ...NO_SAMPLES, children: new Map(), parent: node, depth: node.depth + 1 };
        node.children.set(name, child);
      }
      add(child);
      node = child;
    }
  }
  return root;
}

// Returns the children of a node, the largest first.
function sortedChildren(node) {
  node.sorted ??= [...node.children.values()].sort((one, other) => other.value - one.value || (one.name < other.name ? -1 : 1));
  return node.sorted;
}

// Returns the part of the tree's value in stacks with a name that matches.
function matchedValue(node, matches) {
  if (matches(node.name)) { return node.value; }
  return sortedChildren(node).reduce((sum, child) => sum + matchedValue(child, matches), 0);
}
