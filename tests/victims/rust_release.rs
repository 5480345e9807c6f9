//! An optimized Rust executable without frame pointers and with inlined functions.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::thread;

/// An expression tree; each node is a separate block.
#[derive(Clone, Debug)]
enum Tree {
    Leaf(u64),
    Sum(Box<Tree>, Box<Tree>),
    Named(String, Box<Tree>),
}

impl Tree {
    fn grow(depth: u32, seed: u64) -> Self {
        match (depth, seed % 3) {
            (0, _) => Self::Leaf(seed),
            (_, 0) => Self::Named(format!("node {seed} at {depth}"), Box::new(Self::grow(depth - 1, seed / 2 + 1))),
            _ => Self::Sum(Box::new(Self::grow(depth - 1, seed / 3)), Box::new(Self::grow(depth - 1, seed * 2 + 1))),
        }
    }

    fn show(&self, names: &mut BTreeMap<String, usize>) -> String {
        match self {
            Self::Leaf(value) => value.to_string(),
            Self::Sum(left, right) => {
                let left = left.show(names);
                format!("({left} + {})", right.show(names))
            }
            Self::Named(name, tree) => {
                *names.entry(name.clone()).or_default() += 1;
                tree.show(names)
            }
        }
    }
}

fn count_words(text: &str) -> HashMap<String, Vec<usize>> {
    let mut words: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, word) in text.split_whitespace().enumerate() {
        words.entry(word.to_owned()).or_default().push(at);
    }
    words
}

fn work(number: u64) -> usize {
    let mut names = BTreeMap::new();
    let mut report = String::new();
    for seed in number..number + 12 {
        let tree = Tree::grow(9, seed);
        let shown = tree.clone().show(&mut names);
        writeln!(report, "{seed}: {shown}").expect("a string takes everything");
    }
    let words = count_words(&report);
    let mut sorted: Vec<_> = words.into_iter().map(|(word, places)| (places, word)).collect();
    sorted.sort();
    let boxed: Vec<Box<dyn Fn(usize) -> usize>> =
        sorted.iter().map(|(places, _)| Box::new(move |start| places.len() + start) as Box<_>).collect();
    boxed.iter().fold(names.len(), |sum, add| add(sum))
}

fn main() {
    let threads: Vec<_> = (0..4).map(|number| thread::spawn(move || work(number * 100))).collect();
    let sum: usize = threads.into_iter().map(|thread| thread.join().expect("the work can be done")).sum();
    println!("{sum}");
}
