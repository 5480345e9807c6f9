use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;

use harness::Scratch;
use harness::fixtures::{ASAN, GLIBC, MUSL, output};
use memtrace_host::procfs::Objects;
use memtrace_host::procfs::read_image;
use memtrace_model::{ALLOC_FAILURE, AbsAddr, FUNCTIONS, FileOffset, Mapping, Naming, Pid, REPEATS_FREES};

use super::*;
use crate::object_files::AllFiles;

const ALL_FOUR: &str = "
    void *malloc(unsigned long size) { return (void *)size; }
    void *calloc(unsigned long count, unsigned long size) { return (void *)(count + size); }
    void *realloc(void *old, unsigned long size) { return (char *)old + size; }
    void free(void *block) { (void)block; }";

fn examine_file(path: &Path) -> (Verdict, Option<AllocatorCandidates>) {
    examine(&File::open(path).unwrap(), path, &UserHooks::default())
}

fn candidates_in(path: &str) -> AllocatorCandidates {
    examine_file(Path::new(path)).1.unwrap_or_else(|| panic!("{path} has no allocator"))
}

/// Returns the versioned name, address and size of each hooked function that readelf prints as defined.
fn by_readelf(path: &str) -> BTreeSet<(String, u64, u64)> {
    let printed = output("readelf", &["--dyn-syms".as_ref(), "-W".as_ref(), path.as_ref()]);
    let symbols = printed.lines().filter_map(|line| {
        // Num: Value Size Type Bind Vis Ndx Name
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, value, size, "FUNC", _, _, section, name, ..] = &fields[..] else { return None };
        let is_hooked = FUNCTIONS.iter().any(|function| Some(function.name) == name.split('@').next());
        let symbol = || (name.to_owned(), u64::from_str_radix(value, 16).unwrap(), size.parse().unwrap());
        (is_hooked && section != "UND").then(symbol)
    });
    symbols.collect()
}

fn by_memtrace(found: &AllocatorCandidates) -> BTreeSet<(String, u64, u64)> {
    let functions = found.functions.iter().filter(|function| function.functions != [&REPEATS_FREES]);
    let named = functions.flat_map(|function| function.symbols.iter().map(move |symbol| (symbol, function)));
    named.map(|(symbol, function)| (symbol.clone(), function.virt.0, function.size.0)).collect()
}

#[test]
fn addresses_match_readelf() {
    for path in [GLIBC, MUSL, ASAN] {
        let found = candidates_in(path);
        assert_eq!(by_memtrace(&found), by_readelf(path), "{path}");
        assert_eq!(found.skipped, [], "{path}");
    }
}

#[test]
fn c_libraries_have_their_documented_functions() {
    let names = |path| {
        let functions = candidates_in(path).functions.into_iter().flat_map(|found| found.functions);
        functions.map(|function| function.name).collect::<BTreeSet<_>>()
    };
    let common = ["malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "aligned_alloc", "memalign"];
    let (glibc, musl) = (names(GLIBC), names(MUSL));
    assert!(common.iter().all(|name| glibc.contains(name) && musl.contains(name)));
    assert!(["valloc", "pvalloc"].iter().all(|name| glibc.contains(name)));
    assert!(musl.contains("valloc") && !musl.contains("pvalloc"));
    // Up to 2.41, one function of glibc repeats frees; since 2.42, two.
    assert!(glibc.contains("repeated free") && !musl.contains("repeated free"));
}

#[test]
fn kinds_are_identified_by_symbols() {
    assert_eq!(candidates_in(GLIBC).kinds, Kinds::one(Kind::known("glibc").unwrap()));
    assert_eq!(candidates_in(MUSL).kinds, Kinds::one(Kind::known("musl").unwrap()));
    assert_eq!(candidates_in(ASAN).kinds, Kinds::one(Kind::Other("libasan.so.8".to_owned())));
    let scratch = Scratch::new();
    // The file name does not matter: containers rename musl's library.
    assert_eq!(
        candidates_in(scratch.copy(MUSL, "libsomething.so").to_str().unwrap()).kinds,
        Kinds::one(Kind::known("musl").unwrap())
    );
    assert_eq!(
        candidates_in(scratch.copy(GLIBC, "libsomething.so.2").to_str().unwrap()).kinds,
        Kinds::one(Kind::known("glibc").unwrap())
    );
}

#[test]
fn found_functions_are_those_of_dlsym() {
    let mut objects = Objects::new();
    let image = read_image(Pid(std::process::id()), &mut objects).unwrap();
    let survey = survey(&image, &UserHooks::default(), &AllFiles);
    let supported = survey.supported().unwrap();
    let [glibc] = &supported[..] else { panic!("{:?}", survey.examined) };
    assert_eq!(glibc.kinds, Kinds::one(Kind::known("glibc").unwrap()));
    let mut checked = 0;
    for found in &glibc.functions {
        for function in found.functions.iter().filter(|function| function.naming != Naming::Code) {
            let name = CString::new(function.name).unwrap();
            // SAFETY: `name` is a C string.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
            let mapping = image.mapping_at(AbsAddr(address)).expect("the function is mapped");
            let offset = FileOffset(address - mapping.start.0 + mapping.offset.0);
            assert_eq!(offset, found.file_offset, "{}", function.name);
            assert!(Arc::ptr_eq(mapping.object.as_ref().unwrap(), &glibc.object));
            checked += 1;
        }
    }
    assert!(checked >= 10);
}

#[test]
fn every_mapped_object_is_examined_once() {
    let mut objects = Objects::new();
    let image = read_image(Pid(std::process::id()), &mut objects).unwrap();
    let survey = survey(&image, &UserHooks::default(), &AllFiles);
    let paths: Vec<_> = survey.examined.iter().map(|object| object.path.clone()).collect();
    assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
    let verdict = |name: &str| {
        let object = survey.examined.iter().find(|object| object.path.to_string_lossy().contains(name));
        &object.unwrap_or_else(|| panic!("{name} was not examined")).verdict
    };
    assert_eq!(*verdict("libc.so.6"), Verdict::Traced(Kinds::one(Kind::known("glibc").unwrap())));
    assert_eq!(*verdict("libgcc_s"), Verdict::Lacks("malloc"));
    // The vDSO is mapped but not examined, because it has no file.
    assert!(
        image
            .mappings
            .iter()
            .filter_map(|mapping| mapping.object.as_ref())
            .any(|object| object.path == Path::new("[vdso]"))
    );
    assert!(paths.iter().all(|path| path.is_absolute()), "{paths:?}");
}

#[test]
fn the_allocator_of_an_old_dynamic_linker_is_ignored() {
    let scratch = Scratch::new();
    let options = ["-shared", "-nostdlib", "-fno-builtin", "-Wl,-soname,ld-linux-x86-64.so.2"];
    let linker = scratch.compile("cc", "ld.so", ALL_FOUR, &options);
    assert_eq!(examine_file(&linker).0, Verdict::DynamicLinker);
}

#[test]
fn an_unknown_allocator_is_traced_as_a_wrapper_with_libc() {
    let scratch = Scratch::new();
    let options = ["-shared", "-nostdlib", "-fno-builtin", "-Wl,-soname,libmine.so.1", "-Wl,--hash-style=sysv"];
    let mine = scratch.compile("cc", "libmine.so", ALL_FOUR, &options);
    let image = image_of(&[&mine, Path::new(GLIBC)]);
    let survey = survey(&image.1, &UserHooks::default(), &AllFiles);
    let kinds: Vec<_> = survey.supported().unwrap().iter().map(|allocator| allocator.kinds.clone()).collect();
    assert_eq!(kinds, [Kinds::one(Kind::Other("libmine.so.1".to_owned())), Kinds::one(Kind::known("glibc").unwrap())]);
    let free = |allocator: &Allocator| {
        let found = allocator.functions.iter().find(|found| found.function().name == "free").unwrap();
        found.signature
    };
    assert_eq!(free(&survey.allocators[0]), Signature::FreeAround { block: 0 });
    assert_eq!(free(&survey.allocators[1]), Signature::Free { block: 0 });
    assert_eq!(by_memtrace(&examine_file(&mine).1.unwrap()), by_readelf(mine.to_str().unwrap()));
}

#[test]
fn an_indirect_malloc_is_not_probed() {
    let source = format!(
        "{} static void *resolve(void) {{ return (void *)0; }}
         void *malloc(unsigned long size) __attribute__((ifunc(\"resolve\")));",
        ALL_FOUR.split_once(';').unwrap().1.split_once('}').unwrap().1
    );
    let scratch = Scratch::new();
    let library = scratch.compile("cc", "lib.so", &source, &["-shared", "-nostdlib", "-fno-builtin"]);
    let skipped = Skipped { symbol: "malloc".to_owned(), reason: SkipReason::Indirect };
    assert_eq!(examine_file(&library).1.unwrap().skipped, [skipped]);
}

#[test]
fn a_function_that_only_calls_free_is_not_probed() {
    let source = format!(
        "{ALL_FOUR}
         void free_sized(void *block, unsigned long size) {{ (void)size; free(block); }}
         void free_aligned_sized(void *block, unsigned long a, unsigned long size) {{ (void)a; (void)size; free(0); }}"
    );
    let skipped = Skipped { symbol: "free_sized".to_owned(), reason: SkipReason::Forwards };
    let scratch = Scratch::new();
    // The library calls free through the PLT, because another object may define free, or directly.
    for (name, more) in [("stub.so", "-Wl,-z,lazy"), ("bound.so", "-Wl,-z,now"), ("direct.so", "-Wl,-Bsymbolic")] {
        let library =
            scratch.compile("cc", name, &source, &["-O2", "-fPIC", "-shared", "-nostdlib", "-fno-builtin", more]);
        let found = examine_file(&library).1.unwrap();
        assert_eq!(found.skipped, std::slice::from_ref(&skipped), "{name}");
        let names: Vec<_> = found.functions.iter().map(|found| found.functions[0].name).collect();
        assert_eq!(names, ["malloc", "calloc", "realloc", "free", "free_aligned_sized"], "{name}");
    }
}

#[test]
fn functions_that_follow_a_failed_new_are_found() {
    let source = format!(
        "{ALL_FOUR}
         void _ZSt17__throw_bad_allocv(void) __attribute__((noreturn));
         void *_Znwm(unsigned long size) {{ if (size > 100) _ZSt17__throw_bad_allocv(); return (void *)size; }}
         void _ZdlPv(void *block) {{ (void)block; }}
         void *_ZSt15get_new_handlerv(void) {{ return (void *)0; }}
         void last(void) {{}}"
    );
    let scratch = Scratch::new();
    let options = ["-O2", "-fPIC", "-shared", "-nostdlib", "-fno-builtin", "-fno-toplevel-reorder"];
    for (name, more) in [("stub.so", "-Wl,-z,lazy"), ("bound.so", "-Wl,-z,now")] {
        let library = scratch.compile("cc", name, &source, &[&options[..], &[more]].concat());
        let printed = output("objdump", &["-d".as_ref(), library.as_ref()]);
        let address = |symbol: &str| {
            let label = format!(" <{symbol}>:");
            let hexadecimal = printed.lines().find_map(|line| line.strip_suffix(&label)).unwrap();
            VirtOffset(u64::from_str_radix(hexadecimal, 16).unwrap())
        };
        let found = examine_file(&library).1.unwrap().functions;
        let found = found.into_iter().filter(|function| function.functions == [&ALLOC_FAILURE]);
        let found: BTreeSet<_> = found.map(|function| function.virt).collect();
        let expected = ["_ZSt15get_new_handlerv", "_ZSt17__throw_bad_allocv@plt"].map(address);
        assert_eq!(found, BTreeSet::from(expected), "{name}");
    }
}

#[test]
fn functions_that_follow_a_failure_need_a_new_that_throws() {
    let source = format!("{ALL_FOUR} void *_ZSt15get_new_handlerv(void) {{ return (void *)0; }}");
    let scratch = Scratch::new();
    let library = scratch.compile("cc", "lib.so", &source, &["-shared", "-nostdlib", "-fno-builtin"]);
    let found = examine_file(&library).1.unwrap().functions;
    assert!(found.iter().all(|function| function.functions != [&ALLOC_FAILURE]), "{found:?}");
}

#[test]
fn a_static_executable_needs_its_symbol_table() {
    const PROGRAM: &str = "
        #include <stdlib.h>
        int main(int count, char **words) { void *block = realloc(malloc(count), 20); free(block); return !words; }";
    let scratch = Scratch::new();
    for (compiler, option, kind) in [
        ("gcc", "-static", Kind::known("glibc").unwrap()),
        ("gcc", "-static-pie", Kind::known("glibc").unwrap()),
        ("musl-gcc", "-static", Kind::known("musl").unwrap()),
    ] {
        let program = scratch.compile(compiler, "static", PROGRAM, &[option]);
        let (verdict, found) = examine_file(&program);
        assert_eq!(verdict, Verdict::Traced(Kinds::one(kind)), "{compiler} {option}");
        let names: Vec<_> = found.unwrap().functions.iter().map(|function| function.functions[0].name).collect();
        assert!(["malloc", "realloc", "free"].iter().all(|name| names.contains(name)), "{names:?}");
        let stripped = scratch.compile(compiler, "stripped", PROGRAM, &[option, "-s"]);
        assert_eq!(examine_file(&stripped).0, Verdict::NoSymbols, "{compiler} {option}");
    }
}

#[test]
fn the_error_without_an_allocator_lists_examined_objects() {
    let image = image_of(&[Path::new("/bin/cat"), Path::new("/etc/passwd")]);
    let error = survey(&image.1, &UserHooks::default(), &AllFiles).supported().unwrap_err().to_string();
    assert!(error.contains("\n  /bin/cat: no allocator, does not define malloc"), "{error}");
    assert!(error.contains("\n  /etc/passwd: not an ELF file"), "{error}");
}

#[test]
fn a_damaged_libc_is_reported_unless_there_is_another() {
    let scratch = Scratch::new();
    let whole = fs::read(GLIBC).unwrap();
    let cut = scratch.write("libc.so.6", &whole[..whole.len() / 2]);
    let image = image_of(&[&cut]);
    let error = survey(&image.1, &UserHooks::default(), &AllFiles).supported().unwrap_err();
    assert!(matches!(&error, AllocatorError::BadObject { path, .. } if *path == cut), "{error}");
    let image = image_of(&[&cut, Path::new(MUSL)]);
    assert_eq!(
        survey(&image.1, &UserHooks::default(), &AllFiles).supported().unwrap()[0].kinds,
        Kinds::one(Kind::known("musl").unwrap())
    );
}

/// Returns an image that maps these files, and the [`Objects`] that keep them open.
fn image_of(paths: &[&Path]) -> (Objects, ProcessImage) {
    let mut objects = Objects::new();
    let mut mapping = |path: &&Path| Mapping {
        start: AbsAddr(0x1000),
        end: AbsAddr(0x2000),
        offset: FileOffset(0),
        object: Some(objects.opened(Path::new("/"), path, memtrace_host::procfs::Opened::at(path).unwrap())),
    };
    let mappings = paths.iter().map(&mut mapping).collect();
    (objects, ProcessImage { comm: "test".into(), mappings, ..ProcessImage::default() })
}
