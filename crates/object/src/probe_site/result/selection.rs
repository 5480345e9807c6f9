//! Choice of the result sites, with the proof that every path that returns a block passes one of them.

use std::collections::{BTreeMap, BTreeSet};

use super::backward::{Returned, returned};
use super::forward::{NULL, State, Value, if_null};
use super::graph::{Graph, Next, Node};
use super::place::{FIRST_ARGUMENT, GeneralRegister, Place, RESULT};
use super::refusal::Refusal;
use super::sites::{AnalysedCode, ResultSite, ResultSites, SizeSite, TailSite};
use super::steps::Steps;
use crate::probe_site::site::Cost;

/// Size of a word in bytes.
const WORD: i64 = 8;

/// Maximum distance of a saved register below the return address, in words.
pub const MAX_SAVED: u8 = 7;

/// Maximum decrease of the stack pointer since the entry, in words.
pub const MAX_LOWERED: i64 = 31;

/// State of a path at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Path {
    /// The path has passed no site with a block. If a place is given, it is null, and the function returns its word.
    Open(Option<Place>),
    /// The path has passed the site at this address. If a place is given, it has the block.
    Seen(u64, Option<Place>),
}

/// Chooses the sites of the function. `size` is the symbolic value of the requested size.
pub(super) fn choose(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    size: Value,
    steps: &mut Steps,
) -> Result<ResultSites, Refusal> {
    let returned = returned(graph, states, steps)?;
    let mut candidates = candidates(graph, states, &returned);
    let paths = loop {
        let paths = paths(graph, states, &returned, &candidates, steps)?;
        match repeated(&paths, &candidates) {
            Some(earlier) if earlier.is_empty() => return Err(Refusal::Loop),
            Some(earlier) => candidates.retain(|site, _| !earlier.contains(site)),
            None => break paths,
        }
    };
    let uncounted = |(at, node): (&u64, &Node)| {
        let result = match node.next {
            Next::Return => RESULT,
            Next::ReturnsFirst => FIRST_ARGUMENT,
            _ => return None,
        };
        let is_uncounted = |path: &Path| matches!(path, Path::Open(null) if *null != Some(result));
        paths.get(at).is_some_and(|paths| paths.iter().any(is_uncounted)).then_some(*at)
    };
    if let Some(at) = graph.nodes.iter().find_map(uncounted) {
        return Err(Refusal::Uncounted(at));
    }
    let is_used = |at: &u64| paths.get(at).is_some_and(has_open);
    let chosen: BTreeMap<u64, GeneralRegister> = candidates.into_iter().filter(|(at, _)| is_used(at)).collect();
    let results: Vec<ResultSite> =
        chosen.iter().map(|(at, block)| result_site(graph, states, *at, *block, size)).collect::<Result<_, _>>()?;
    let sizes = size_sites(graph, states, &results, size)?;
    if !are_ended(graph, &results, &sizes) {
        return Err(Refusal::NoSize);
    }
    let lowered = results.iter().map(|site| (site.address, site.lowered));
    let mut lowered = lowered.chain(sizes.iter().map(|site| (site.address, site.lowered)));
    if let Some((at, _)) = lowered.find(|(_, lowered)| *lowered / WORD > MAX_LOWERED) {
        return Err(Refusal::LargeFrame(at));
    }
    let tails = tail_sites(graph, states, size)?;
    if results.iter().all(|site| site.size.is_none()) {
        return Err(Refusal::NoSize);
    }
    let instructions = graph.nodes.iter().map(|(at, node)| (*at, node.instruction.next_ip()));
    Ok(ResultSites { results, sizes, tails, code: AnalysedCode::new(graph.entry, instructions) })
}

/// Returns the emulated instructions with the function's result in a register, each with this register. Registers that are null
/// do not count.
fn candidates(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    returned: &BTreeMap<u64, Returned>,
) -> BTreeMap<u64, GeneralRegister> {
    let is_null = |at: &u64, place| states.get(at).is_some_and(|state| state.value(place) == Some(NULL));
    let register = |at: &u64| match returned.get(at)? {
        // No path from here returns a block.
        Returned::Any => None,
        Returned::Places(places) => places.iter().find_map(|place| match place {
            Place::Register(register) => (!is_null(at, *place)).then_some(*register),
            Place::Slot(_) => None,
        }),
    };
    let usable = graph.nodes.iter().filter(|(_, node)| is_usable(node));
    usable.filter_map(|(at, _)| Some((*at, register(at)?))).collect()
}

/// Returns true for an emulated instruction that is no call. The kernel does not push the return address of an
/// emulated call on the shadow stack of a process (`emulate_push_stack`, arch/x86/kernel/uprobes.c).
fn is_usable(node: &Node) -> bool {
    node.cost == Cost::Emulated && !node.next.is_call() && node.next != Next::End
}

/// Returns the states of the paths to each instruction.
fn paths(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    returned: &BTreeMap<u64, Returned>,
    candidates: &BTreeMap<u64, GeneralRegister>,
    steps: &mut Steps,
) -> Result<BTreeMap<u64, BTreeSet<Path>>, Refusal> {
    let first = Path::Open(None);
    let mut all = BTreeMap::from([(graph.entry, BTreeSet::from([first]))]);
    let mut waiting = vec![(graph.entry, first)];
    while let Some((at, path)) = waiting.pop() {
        steps.count()?;
        let (Some(node), Some(state)) = (graph.nodes.get(&at), states.get(&at)) else { continue };
        let path = match (path, candidates.get(&at)) {
            (Path::Open(_), Some(block)) => Path::Seen(at, Some(Place::Register(*block))),
            (path, _) => path,
        };
        for next in node.next.addresses() {
            let after = follow(path, node, state, (next, returned.get(&next)));
            if all.entry(next).or_default().insert(after) {
                waiting.push((next, after));
            }
        }
    }
    Ok(all)
}

/// Returns the state of a path after the instruction of `node`, if the path continues at `next`. `returned` are the
/// places with the returned word there.
fn follow(path: Path, node: &Node, state: &State, (next, returned): (u64, Option<&Returned>)) -> Path {
    let is_returned = |place: &Place| matches!(returned, Some(Returned::Places(places)) if places.contains(place));
    let null = state.compared.filter(|_| if_null(node) == Some(next));
    let effects = state.effects_of(node);
    let after = |place: Place| {
        let kept = Some(place).filter(|place| !effects.writes(*place));
        let copied = effects.copy.filter(|(from, _)| *from == place).map(|(_, to)| to);
        kept.filter(is_returned).or(copied.filter(is_returned)).or(kept).or(copied)
    };
    match path {
        Path::Seen(_, Some(block)) if null == Some(block) => Path::Open(null),
        Path::Seen(site, block) => Path::Seen(site, block.and_then(after)),
        Path::Open(known) => {
            let compared = null.filter(|place| *place == RESULT || is_returned(place));
            let written = state.writes_null(node).filter(is_returned);
            Path::Open(compared.or(written).or(known.and_then(after)))
        }
    }
}

/// Returns the sites from which a path leads to a different site. The set is empty if paths only return to the same site. Returns
/// `None` if no path reaches a site after a site.
fn repeated(
    paths: &BTreeMap<u64, BTreeSet<Path>>,
    candidates: &BTreeMap<u64, GeneralRegister>,
) -> Option<BTreeSet<u64>> {
    let mut found = None;
    for at in candidates.keys() {
        let Some(paths) = paths.get(at).filter(|paths| has_open(paths)) else { continue };
        for path in paths {
            if let Path::Seen(site, _) = path {
                found.get_or_insert_with(BTreeSet::new).extend((site != at).then_some(*site));
            }
        }
    }
    found
}

/// Returns true if every path from a size site passes a result site. The call that begins at a size site ends at the
/// result site, with a block or without. Result sites after it, which see the result of another attempt, must have
/// the size.
fn are_ended(graph: &Graph, results: &[ResultSite], sizes: &[SizeSite]) -> bool {
    let results: BTreeMap<u64, &ResultSite> = results.iter().map(|site| (site.address, site)).collect();
    let without_size = results.values().filter(|site| site.size.is_none()).map(|site| site.address);
    let before_those = graph.reach_backwards(without_size);
    let reached = graph.reach(sizes.iter().flat_map(|site| graph.after(site.address)), |at| !results.contains_key(&at));
    reached.into_iter().all(|at| match results.get(&at) {
        Some(_) => graph.after(at).all(|next| !before_those.contains(&next)),
        None => graph.nodes.get(&at).is_some_and(|node| !node.next.leaves()),
    })
}

fn has_open(paths: &BTreeSet<Path>) -> bool {
    paths.iter().any(|path| matches!(path, Path::Open(_)))
}

fn result_site(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    at: u64,
    block: GeneralRegister,
    size: Value,
) -> Result<ResultSite, Refusal> {
    let unsaved = Refusal::Unsaved(at);
    let (node, state) = graph.nodes.get(&at).zip(states.get(&at)).ok_or(unsaved)?;
    let mut saved = [0; 6];
    for (word, register) in saved.iter_mut().zip(GeneralRegister::PRESERVED) {
        *word = word_of(state, register).ok_or(unsaved)?;
    }
    Ok(ResultSite {
        address: at,
        cost: node.cost,
        block,
        size: register_with(state, size),
        lowered: -state.stack,
        saved,
    })
}

/// Returns the location of the word that `register` had at the entry: 0 if the register still has it, else the number
/// of words below the return address.
fn word_of(state: &State, register: GeneralRegister) -> Option<u8> {
    let places: Vec<Place> = state.places_of(Value::Saved(register)).collect();
    if places.contains(&Place::Register(register)) {
        return Some(0);
    }
    let words = places.iter().filter_map(|place| match place {
        Place::Slot(at) => u8::try_from(-at / WORD).ok().filter(|words| (1..=MAX_SAVED).contains(words)),
        Place::Register(_) => None,
    });
    words.min()
}

/// Returns the jumps to other functions that return the block, with the size in a register.
fn tail_sites(graph: &Graph, states: &BTreeMap<u64, State>, size: Value) -> Result<Vec<TailSite>, Refusal> {
    let mut sites = Vec::new();
    for (at, node) in &graph.nodes {
        let Next::TailCall(target) = node.next else { continue };
        let size = states.get(at).and_then(|state| register_with(state, size));
        match size.filter(|_| node.cost == Cost::Emulated) {
            Some(size) => sites.push(TailSite { address: *at, size, target }),
            None => return Err(Refusal::TailCall(*at)),
        }
    }
    Ok(sites)
}

fn register_with(state: &State, value: Value) -> Option<GeneralRegister> {
    state.places_of(value).find_map(|place| match place {
        Place::Register(register) => Some(register),
        Place::Slot(_) => None,
    })
}

/// Returns the size sites: on every path to a result site without the size, the last usable instruction with the size in a
/// register.
fn size_sites(
    graph: &Graph,
    states: &BTreeMap<u64, State>,
    results: &[ResultSite],
    size: Value,
) -> Result<Vec<SizeSite>, Refusal> {
    let predecessors = graph.predecessors();
    let mut waiting: Vec<u64> = results.iter().filter(|site| site.size.is_none()).map(|site| site.address).collect();
    let mut seen: BTreeSet<u64> = waiting.iter().copied().collect();
    let mut sites = BTreeMap::new();
    while let Some(at) = waiting.pop() {
        let before = predecessors.get(&at).map(Vec::as_slice).unwrap_or_default();
        if at == graph.entry {
            return Err(Refusal::NoSize);
        }
        for &previous in before {
            let (Some(node), Some(state)) = (graph.nodes.get(&previous), states.get(&previous)) else { continue };
            let register = register_with(state, size);
            let is_result = results.iter().any(|site| site.address == previous);
            match register {
                Some(size) if is_usable(node) && !is_result => {
                    let site = SizeSite { address: previous, cost: node.cost, size, lowered: -state.stack };
                    sites.insert(previous, site);
                }
                _ if seen.insert(previous) => waiting.push(previous),
                _ => {}
            }
        }
    }
    Ok(sites.into_values().collect())
}
