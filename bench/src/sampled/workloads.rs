//! Programs that repeat a round of work for ever. Most print the result of each round. Servers get their work from a client.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Maximum ratio of the processor times of most programs.
const LIMIT: f64 = 1.05;

/// Program and its work.
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Description of a round.
    pub(super) does: &'static str,
    pub(super) words: Vec<OsString>,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Maximum of the processor time while the program is sampled, divided by that without a tracer.
    pub(super) limit: f64,
    pub(super) input: Input,
}

/// Input of a program.
pub(super) enum Input {
    None,
    /// Text of a round, which is written again and again to the standard input.
    Repeated(String),
    Requests(Requests),
}

/// Requests to a server.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    /// Path of the Unix socket at which the server listens.
    pub(super) socket: PathBuf,
    /// Returns the request with this number.
    pub(super) request: fn(u64) -> Vec<u8>,
    /// Reply to each request.
    pub(super) reply: &'static [u8],
}

/// Size of a value that is stored in a server.
const VALUE: usize = 400;

const PYTHON: &str = "
def work():
    table = {number: [number, str(number) * (number % 7), {'k': number}] for number in range(20000)}
    return sum(len(text) + parts['k'] for _, text, parts in table.values())
while True:
    print(work(), flush=True)
";

const PERL: &str = r#"$| = 1;
while (1) {
    my %table = map { $_ => "x" x ($_ % 300) } 1 .. 60000;
    my $sum = 0;
    $sum += length($table{$_}) * ($_ % 17) for keys %table;
    print "$sum\n";
}
"#;

const LUA: &str = "
while true do
    local rows, sum = {}, 0
    for i = 1, 60000 do rows[i] = {i, tostring(i), x = i % 13} end
    for i = 1, 60000 do sum = sum + #rows[i][2] * rows[i].x end
    io.write(sum, '\\n')
    io.flush()
end
";

const RUBY: &str = "
$stdout.sync = true
loop do
  table = (1..60000).to_h { |number| [number, 'x' * (number % 300)] }
  puts table.sum { |number, text| text.length * (number % 17) }
end
";

const NODE: &str = "
for (;;) {
    const buffers = [];
    let sum = 0;
    for (let i = 0; i < 20000; i++) buffers.push(Buffer.alloc(100 + i % 3000, i % 256));
    for (const buffer of buffers) sum += buffer[buffer.length - 1];
    console.log(sum);
}
";

const JQ: &str = "range(1000000000) | [range(20000) | {key: tostring, value: (. * 7)}] | from_entries | map(.) | add";

/// Returns the installed programs, and the names of the others.
pub(super) fn all(folder: &Path) -> (Vec<Workload>, Vec<&'static str>) {
    let programs = [
        printing(
            "python3",
            "builds a dict of lists, PYTHONMALLOC=malloc",
            &["/usr/bin/python3", "-S", "-c", PYTHON],
            LIMIT,
        )
        .with_environment(&[("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0")]),
        sqlite(),
        printing("ruby", "builds a hash of strings", &["/usr/bin/ruby", "-e", RUBY], LIMIT),
        printing("perl", "builds a hash of strings", &["/usr/bin/perl", "-e", PERL], LIMIT)
            .with_environment(&[("PERL_HASH_SEED", "0"), ("PERL_PERTURB_KEYS", "0")]),
        printing("jq", "builds an object of 20,000 numbers", &["/usr/bin/jq", "-n", "--unbuffered", JQ], LIMIT),
        printing("lua", "builds a table of tables", &["/usr/bin/lua5.4", "-e", LUA], 1.10),
        printing("node", "allocates buffers", &["/usr/bin/node", "-e", NODE], LIMIT),
        redis(folder),
        memcached(folder),
    ];
    let (installed, missing): (Vec<_>, Vec<_>) = programs.into_iter().partition(Workload::is_installed);
    (installed, missing.into_iter().map(|workload| workload.name).collect())
}

fn printing(name: &'static str, does: &'static str, words: &[&str], limit: f64) -> Workload {
    let words = words.iter().map(OsString::from).collect();
    Workload { name, does, words, environment: &[], limit, input: Input::None }
}

impl Workload {
    fn with_environment(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    fn is_installed(&self) -> bool {
        Path::new(&self.words[0]).is_file()
    }

    /// Returns true if the program is a server.
    pub(super) const fn is_server(&self) -> bool {
        matches!(self.input, Input::Requests(_))
    }
}

/// Returns sqlite3, which gets its statements from a pipe.
fn sqlite() -> Workload {
    let mut round =
        String::from("CREATE TABLE visits (id INTEGER PRIMARY KEY, name TEXT, page TEXT, bytes INT);\nBEGIN;\n");
    for row in 0..4000_u64 {
        let name = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        // Writing to a string cannot fail.
        let _ =
            writeln!(round, "INSERT INTO visits (name, page, bytes) VALUES ('visitor {name}', '/page/{row}', {row});");
    }
    round.push_str("COMMIT;\nSELECT sum(bytes) FROM visits;\nDROP TABLE visits;\n");
    Workload {
        input: Input::Repeated(round),
        ..printing(
            "sqlite3",
            "inserts rows into a table in memory, a statement each",
            &["/usr/bin/sqlite3", ":memory:"],
            LIMIT,
        )
    }
}

/// Returns redis-server, which Debian builds with jemalloc.
fn redis(folder: &Path) -> Workload {
    let socket = folder.join("redis");
    let words = ["/usr/bin/redis-server", "--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"];
    let words = words.iter().map(OsString::from).chain([socket.clone().into_os_string()]).collect();
    let request = |number: u64| {
        let value = "x".repeat(VALUE);
        format!("*3\r\n$3\r\nSET\r\n$10\r\n{:010}\r\n${VALUE}\r\n{value}\r\n", key(number)).into_bytes()
    };
    Workload {
        name: "redis-server",
        does: "stores values of 400 bytes by 16 requests at once",
        words,
        environment: &[],
        limit: 1.03,
        input: Input::Requests(Requests { socket, request, reply: b"+OK\r\n" }),
    }
}

fn memcached(folder: &Path) -> Workload {
    let socket = folder.join("memcached");
    let words = ["/usr/bin/memcached", "-u", "root", "-t", "1", "-m", "64", "-s"];
    let words = words.iter().map(OsString::from).chain([socket.clone().into_os_string()]).collect();
    let request = |number: u64| {
        let value = "x".repeat(VALUE);
        format!("set {:010} 0 0 {VALUE}\r\n{value}\r\n", key(number)).into_bytes()
    };
    Workload {
        name: "memcached",
        does: "stores values of 400 bytes by 16 requests at once",
        words,
        environment: &[],
        limit: 1.03,
        input: Input::Requests(Requests { socket, request, reply: b"STORED\r\n" }),
    }
}

/// Returns one of 131,072 keys.
const fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_state_their_lengths() {
        let (redis, memcached) = (redis(Path::new("/tmp")), memcached(Path::new("/tmp")));
        let request = |workload: &Workload| {
            let Input::Requests(requests) = &workload.input else { panic!("a server") };
            String::from_utf8((requests.request)(7)).unwrap()
        };
        assert!(redis.is_server() && memcached.is_server() && !sqlite().is_server());
        let text = request(&redis);
        let parts: Vec<_> = text.split("\r\n").collect();
        assert_eq!(parts[..3], ["*3", "$3", "SET"]);
        assert_eq!((parts[3], parts[4].len(), parts[5], parts[6].len()), ("$10", 10, "$400", 400));
        let text = request(&memcached);
        let (line, value) = text.split_once("\r\n").unwrap();
        assert_eq!(line, format!("set {} 0 0 400", parts[4]));
        assert_eq!(value.trim_end().len(), 400);
    }
}
