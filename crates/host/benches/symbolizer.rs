//! Benchmark of symbolization: measures the time to find the functions of an object in this process, and in a child without
//! privileges. The child gets the file itself or a copy. Run it as root: then only files that do not belong to root are copied.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use criterion::Criterion;
use memtrace_host::procfs::descriptor_path;
use memtrace_host::symbolizer::{self, SymbolizerProcess};
use memtrace_model::VirtOffset;
use memtrace_object::symbolize::{FindInProcess, FunctionFinder, NameFiles, NamesToRead};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Number of addresses that a usual report looks up in an object with debug information.
const ADDRESSES: u64 = 200;
const STEP: u64 = 4096;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == symbolizer::NAME) {
        return symbolizer::serve();
    }
    let mut criterion = Criterion::default().configure_from_args();
    names(&mut criterion);
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn names(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("symbolizer");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let folder = std::env::temp_dir().join(format!("memtrace-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("the directory can be created");
    let own = std::env::current_exe().expect("the path is known");
    for (name, object) in [("symbols of libc", Path::new(LIBC)), ("debug information of this bench", &own)] {
        let has_debug_info = name.starts_with("debug");
        let open = |path: &Path| {
            let reads =
                NamesToRead { object_debug_info: has_debug_info, object_symbols: true, debug_file_debug_info: false };
            let object = File::open(path).expect("the object is readable");
            NameFiles { object, debug_file: None, supplementary: None, reads }
        };
        let copy = |name: &str, mode| -> PathBuf {
            let path = folder.join(name);
            fs::copy(object, &path).expect("the object can be copied");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the copy is ours");
            path
        };
        let (readable, private) = (copy("readable", 0o755), copy("private", 0o700));
        let addresses: Vec<_> = (1..=ADDRESSES).map(|number| VirtOffset(number * STEP)).collect();
        let in_process = FindInProcess { path_of: |file| descriptor_path(file), opens_others: true };
        let child = SymbolizerProcess::default();
        let ways: [(&str, &dyn FunctionFinder, &Path); 3] = [
            ("in this process", &in_process, &readable),
            ("in a child, by descriptor", &child, &readable),
            ("in a child, by a copy", &child, &private),
        ];
        let found = ways.map(|(_, finder, path)| finder.find(&open(path), &addresses));
        assert!(found[0].iter().any(Result::is_ok), "functions have names");
        assert!(found[1..].iter().all(|other| *other == found[0]), "all ways find the same");
        for (way, finder, path) in ways {
            group.bench_function(format!("{name}/{way}"), |bencher| {
                bencher.iter(|| finder.find(&open(path), &addresses));
            });
        }
    }
    group.finish();
    fs::remove_dir_all(&folder).expect("the directory can be removed");
}
