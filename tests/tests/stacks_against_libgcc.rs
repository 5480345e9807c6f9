//! Stacks of real applications equal the stacks that libgcc's unwinder takes in the same process, frame by frame.

#![expect(clippy::print_stdout, reason = "the tests print the measured shares")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::process::run;
use memtrace_tests::{Oracle, Outcome, Scratch, Trace, Victim, victim};

/// Minimum number of compared stacks.
const SAMPLES: u64 = 1000;
/// Minimum share of equal stacks.
const SHARE: f64 = 0.995;

const OPTIONS: &[&str] = &["--max-depth", "256", "--ring-size", "64MiB"];

/// An executable with its arguments and environment, and the sampling of its allocations.
struct Subject<'words> {
    program: PathBuf,
    arguments: &'words [&'words str],
    variables: &'words [(&'words str, &'words str)],
    every: u64,
    /// Number of allocations before the first sample.
    skip: u64,
}

impl Subject<'_> {
    fn new(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref().canonicalize().expect("the executable is installed");
        Self { program, arguments: &[], variables: &[], every: 1, skip: 0 }
    }

    /// Attaches at the first sampled allocation, when the linked libraries are mapped. Asserts that the stacks are
    /// equal.
    fn stacks_equal(&self) {
        let scratch = Scratch::new();
        let oracle = Oracle::create(&scratch);
        oracle.begin_gated(self.every, self.skip);
        let variables = oracle.environment();
        let mut command = Command::new(&self.program);
        command.args(self.arguments).envs(self.variables.iter().copied()).envs(variables);
        let mut victim = Victim::start(&mut command);
        let tracer = Trace::victim(&victim).options(OPTIONS).start();
        victim.process().write_line("");
        let outcome = tracer.wait();
        let status = victim.process().wait();
        assert!(status.success(), "{status}: {}", victim.process().remaining_stderr());
        self.compare(&oracle, &outcome);
    }

    fn compare(&self, oracle: &Oracle, outcome: &Outcome) {
        let report = outcome.report();
        report.assert_nothing_lost();
        let comparison = oracle.compare(&self.program, &report);
        println!("{}: {comparison}", self.program.display());
        assert!(comparison.sampled >= SAMPLES, "{comparison}");
        assert_eq!(comparison.seen, comparison.sampled, "the sampled calls that memtrace saw");
        assert!(comparison.share() >= SHARE, "{comparison}\n{}", comparison.differences.join("\n"));
    }
}

const PYTHON: &str = "
import collections, json, re, sqlite3, string
class Shape:
    def __init__(self, name, depth):
        self.name = name
        self.parts = [Shape(f'{name}.{part}', depth - 1) for part in range(3)] if depth else []
    def plain(self):
        return {'name': self.name, 'parts': [part.plain() for part in self.parts]}
def visit(shape, path=()):
    try:
        if not shape['parts']:
            raise LookupError(path)
        for part in shape['parts']:
            yield from visit(part, path + (part['name'],))
    except LookupError as error:
        yield str(error)
text = json.dumps(Shape('root', 6).plain())
paths = sorted(visit(json.loads(text)), key=lambda path: path[::-1])
words = collections.Counter(re.findall(r'[a-z]+|[0-9]+', ' '.join(paths)))
table = sqlite3.connect(':memory:')
table.execute('create table words(word text primary key, number int)')
table.executemany('insert into words values(?, ?)', words.items())
print(table.execute('select sum(number) from words').fetchone())
print(string.Template('$a and $b').substitute(a=1, b=2))
";

#[test]
fn python_stacks_match_libgcc() {
    Subject {
        arguments: &["-c", PYTHON],
        variables: &[("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0")],
        every: 23,
        skip: 60_000,
        ..Subject::new("/usr/bin/python3")
    }
    .stacks_equal();
}

const CPP: &str = "
#include <tuple>
template <typename Key, int depth> struct Index {
    std::tuple<Index<Key, depth - 1>, Key, int> parts;
    template <typename Use> int each(Use use) {
        use(std::get<1>(parts));
        return std::get<0>(parts).each([&](auto key) { use(key + depth); }) + std::get<2>(parts);
    }
};
template <typename Key> struct Index<Key, 0> {
    template <typename Use> int each(Use use) { return use(Key{}), 0; }
};
int main(int count, char **words) {
    Index<const char *, 3> index{};
    std::get<1>(index.parts) = words[count - 1];
    return index.each([&](const char *key) { count += key ? *key : 1; }) + count;
}
";

#[test]
fn cc1plus_stacks_match_libgcc() {
    let scratch = Scratch::new();
    let (source, preprocessed) = (scratch.join("index.cpp"), scratch.join("index.ii"));
    fs::write(&source, CPP).expect("the scratch directory is writable");
    run(Command::new("g++").arg("-E").arg(&source).arg("-o").arg(&preprocessed));
    let compiler = run(Command::new("g++").arg("-print-prog-name=cc1plus"));
    let source = preprocessed.to_str().expect("the path is UTF-8");
    let arguments = ["-quiet", "-O2", "-fpreprocessed", source, "-o", "/dev/null"];
    Subject { arguments: &arguments, every: 13, ..Subject::new(compiler.trim()) }.stacks_equal();
}

const SQL: &str = "
create table entries(id integer primary key, name text, size int, parent int);
with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < 3000)
    insert into entries select n, printf('entry %08d', n * 7919 % 3001), n * 31 % 977, n / 3 from numbers;
create index by_name on entries(name);
create index by_size on entries(size, parent);
create view sums as select parent, sum(size) as total, group_concat(name, ', ') as names from entries group by parent;
select count(*), max(length(names)) from sums where total > 500;
select a.name, b.name from entries a join entries b on a.parent = b.id where a.size > 970 order by b.name desc limit 5;
with recursive up(id, depth) as (select 2999, 0 union all select parent, depth + 1 from entries join up using (id))
    select max(depth) from up;
update entries set name = replace(upper(name), 'ENTRY', 'E') where size % 3 = 0;
select json_group_array(json_object('id', id, 'name', name)) from entries where id < 40;
delete from entries where id in (select id from entries order by random() limit 900);
select name, row_number() over (partition by parent order by size) from entries where parent < 9;
";

#[test]
fn sqlite_stacks_match_libgcc() {
    Subject { arguments: &[":memory:", SQL], every: 7, ..Subject::new("/usr/bin/sqlite3") }.stacks_equal();
}

const JAVASCRIPT: &str = "
const crypto = require('crypto'), zlib = require('zlib');
const makers = [];
for (let i = 0; i < 150; i++) makers.push(new Function('x', `return x.map(y => y * ${i}).filter(y => y % 3).join('-')`));
const numbers = Array.from({ length: 200 }, (_, i) => i);
const index = new Map();
for (const maker of makers) {
    const text = maker(numbers);
    index.set(crypto.createHash('sha256').update(text).digest('hex'), zlib.deflateSync(text).length);
}
const found = JSON.parse(JSON.stringify([...index])).filter(([hash]) => /^[0-7]/.test(hash));
console.log(found.length > 0);
";

/// libgcc has no unwind information for JIT code, and for the builtins that V8 generated when node was built. Stacks
/// through such code are compared only from the leaf to the first such frame. The comparison counts these stacks.
#[test]
fn node_stacks_match_libgcc() {
    Subject { arguments: &["-e", JAVASCRIPT], every: 29, ..Subject::new("/usr/bin/node") }.stacks_equal();
}

#[test]
fn optimized_rust_stacks_match_libgcc() {
    Subject { every: 11, ..Subject::new(victim::path("rust_release")) }.stacks_equal();
}
