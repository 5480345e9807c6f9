use std::path::PathBuf;
use std::sync::Mutex;

use super::*;

/// Returns jobs for objects with these paths and numbers of users.
fn jobs(users: &[(&str, u32)]) -> Vec<BuildJob> {
    let jobs = users.iter().map(|&(path, users)| {
        let object = Object { path: path.into(), handle: Some(path.into()), build_id: None, root: None };
        BuildJob { object: Arc::new(object), users }
    });
    jobs.collect()
}

fn paths(jobs: Vec<BuildJob>, threads: usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    build_all(jobs, threads, None, |built| paths.push(built.object.path.clone()));
    paths
}

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const LD: &str = "/lib64/ld-linux-x86-64.so.2";
const LIBGCC: &str = "/lib/x86_64-linux-gnu/libgcc_s.so.1";

#[test]
fn most_used_objects_come_first_then_the_c_library() {
    let order = paths(jobs(&[(LIBGCC, 1), (LD, 1), (LIBC, 1), ("/none", 2)]), 1);
    assert_eq!(order, ["/none", LIBC, LD, LIBGCC].map(PathBuf::from));
}

#[test]
fn thread_count_does_not_change_the_tables() {
    let build = |threads| {
        let mut tables = Vec::new();
        build_all(jobs(&[(LIBC, 3), (LD, 3), (LIBGCC, 1), ("/none", 1)]), threads, None, |built| {
            tables.push((built.object.path.clone(), built.table.map_err(|error| error.to_string())));
        });
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        tables
    };
    let one = build(1);
    assert_eq!(one.len(), 4);
    assert_eq!(one.iter().filter(|(_, table)| table.is_ok()).count(), 3);
    for threads in [0, 2, 9] {
        assert_eq!(build(threads), one, "{threads} threads");
    }
    assert!(paths(Vec::new(), 2).is_empty());
}

#[test]
fn tables_are_received_in_the_calling_thread() {
    let asked = thread::current().id();
    let taken = Mutex::new(Vec::new());
    build_all(jobs(&[(LIBC, 1), (LD, 1)]), 2, None, |_| taken.lock().unwrap().push(thread::current().id()));
    assert_eq!(taken.into_inner().unwrap(), [asked, asked]);
}

#[test]
fn an_object_that_cannot_be_opened_has_a_reason() {
    let object = Object { path: LIBC.into(), handle: None, build_id: None, root: None };
    let mut reasons = Vec::new();
    build_all(vec![BuildJob { object: Arc::new(object), users: 1 }], 1, None, |built| {
        reasons.push(built.table.is_err());
    });
    build_all(jobs(&[("/", 1)]), 1, None, |built| reasons.push(matches!(built.table, Err(Error::Io(_)))));
    assert_eq!(reasons, [true, true]);
}
