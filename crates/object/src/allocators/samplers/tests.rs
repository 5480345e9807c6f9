use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use harness::Scratch;
use harness::fixtures::{GLIBC, output};
use proptest::prelude::*;

use super::*;

const MAIN: &str = "#include <stdlib.h>\nint main(void) { free(malloc(1)); }";

/// Functions and variables with the names of Google's tcmalloc.
const TCMALLOC: &str = r#"
    #define FUNCTION(name, label) void name(void) __asm__(label); void name(void) { __asm__ volatile(".skip 100, 0x90"); }
    FUNCTION(draw, "_ZN8tcmalloc17tcmalloc_internal7Sampler20RecordAllocationSlowEm")
    FUNCTION(sample, "_ZN8tcmalloc17tcmalloc_internal4Span6SampleEPNS0_17SampledAllocationE")
    FUNCTION(part, "_ZN8tcmalloc17tcmalloc_internal4Span6SampleEPNS0_17SampledAllocationE.cold")
    FUNCTION(unsample, UNSAMPLE)
    long interval __asm__(INTERVAL) = 2 << 20;
    int main(void) {}"#;

/// Functions and variables with the names of jemalloc. `SIZE`: size of the function that reports samples.
const JEMALLOC: &str = r#"
    #define FUNCTION(name, size) void name(void) { __asm__ volatile(".skip " size ", 0x90"); }
    FUNCTION(mine_prof_malloc_sample_object, SIZE)
    #ifdef NEW
    FUNCTION(mine_prof_recent_alloc_reset, "100")
    #endif
    #ifdef BUNDLED
    FUNCTION(bundled_prof_malloc_sample_object, "1")
    #endif
    unsigned long mine_opt_lg_prof_sample, mine_lg_prof_sample;
    char mine_opt_prof;
    int main(void) {}"#;

/// Returns the place of the argument `number` of a call: the DWARF number of its register.
fn argument(number: usize) -> ArgumentPlace {
    let registers = if cfg!(target_arch = "aarch64") { [0, 1, 2, 3] } else { [5, 4, 1, 2] };
    ArgumentPlace { location: ArgumentLocation::Register(registers[number]), bits: 64, is_signed: false }
}

fn compile(source: &str, options: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let path = scratch.compile("gcc", "program", source, options);
    (scratch, path)
}

/// Returns the addresses of the symbols that nm prints.
fn by_nm(path: &Path) -> BTreeMap<String, u64> {
    let printed = output("nm", &[path.as_os_str()]);
    let symbols = printed.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    });
    symbols.collect()
}

fn find(path: &Path) -> Result<Vec<AllocatorSampler>, SamplerRefusal> {
    find_samplers(&File::open(path).unwrap())
}

fn only(path: &Path) -> AllocatorSampler {
    let mut found = find(path).unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()));
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Returns the address and the report of each function.
fn reports(sampler: &AllocatorSampler) -> Vec<(u64, SamplerReport)> {
    sampler.functions.iter().map(|function| (function.virt.0, function.report)).collect()
}

fn refusal(path: &Path) -> String {
    find(path).unwrap_err().to_string()
}

/// Returns the path of a library of the system.
fn library(name: &str) -> PathBuf {
    PathBuf::from(output("gcc", &[format!("-print-file-name={name}").as_ref()]).trim())
}

#[test]
fn jemalloc_in_an_executable_is_found() {
    let (_scratch, path) = compile(MAIN, &["-l:libjemalloc.a", "-lstdc++", "-lm"]);
    let (found, symbols) = (only(&path), by_nm(&path));
    let edata = if cfg!(target_arch = "aarch64") { 1 } else { 4 };
    let location = ArgumentLocation::Memory { register: edata, offset: 8 };
    let free = SamplerReport::Free { block: ArgumentPlace { location, ..argument(0) } };
    let sizes = Some(SamplerSizes { requested: argument(2), usable: argument(3) });
    let alloc = SamplerReport::Alloc { block: argument(1), sizes, list: None };
    let expected = [(symbols["je_prof_recent_alloc_reset"], free), (symbols["je_prof_malloc_sample_object"], alloc)];
    assert_eq!(reports(&found), expected);
    let interval = IntervalVariable { virt: VirtOffset(symbols["je_lg_prof_sample"]), is_binary_logarithm: true };
    assert_eq!((found.source, found.extra, found.interval), (SampleSource::Jemalloc, 0, interval));
    assert_eq!(found.enabled, Some(VirtOffset(symbols["je_opt_prof"])));
    let file = fs::read(&path).unwrap();
    let is_code = |function: &SamplerFunction| file[function.offset.0 as usize..][..2] != [0, 0];
    assert!(found.functions.iter().all(is_code), "{found:?}");
}

#[test]
fn gperftools_in_an_executable_is_found() {
    let (_scratch, path) = compile(MAIN, &["-l:libtcmalloc.a", "-lunwind", "-lstdc++", "-lm"]);
    let (found, symbols) = (only(&path), by_nm(&path));
    let is_free = |name: &&String| name.contains("do_free_pages") && !name.contains("cold");
    let free = symbols.keys().find(is_free).unwrap();
    let list = VirtOffset(symbols["_ZN8tcmalloc6Static16sampled_objects_E"]);
    let expected = [
        (symbols[free], SamplerReport::Free { block: argument(0) }),
        (symbols["_ZN8tcmalloc7Sampler20RecordAllocationSlowEm"], SamplerReport::Draw { size: argument(1) }),
        (
            symbols["_ZN8tcmalloc11DLL_PrependEPNS_4SpanES1_"],
            SamplerReport::Alloc { block: argument(1), sizes: None, list: Some(list) },
        ),
    ];
    assert_eq!(reports(&found), expected);
    let parameter = symbols.keys().find(|name| name.contains("31FLAGS_tcmalloc_sample_parameter")).unwrap();
    let interval = IntervalVariable { virt: VirtOffset(symbols[parameter]), is_binary_logarithm: false };
    assert_eq!((found.source, found.extra, found.interval), (SampleSource::Tcmalloc, 0, interval));
    assert_eq!(found.enabled, None);
}

#[test]
fn tcmalloc_of_each_release_is_found() {
    let names = [
        ("_ZN8tcmalloc17tcmalloc_internal4Span8UnsampleEv", "22profile_sampling_rate_E"),
        ("_ZN8tcmalloc17tcmalloc_internal4Span12UnsampleSlowEv", "26profile_sampling_interval_E"),
    ];
    for (unsample, variable) in names {
        let variable = format!("_ZN8tcmalloc17tcmalloc_internal10Parameters{variable}");
        let options = [format!("-DUNSAMPLE=\"{unsample}\""), format!("-DINTERVAL=\"{variable}\"")];
        let (_scratch, path) = compile(TCMALLOC, &[&options[0], &options[1]]);
        let (found, symbols) = (only(&path), by_nm(&path));
        let at = |name: &str| symbols[name];
        let expected = [
            (at(unsample), SamplerReport::Free { block: argument(0) }),
            (
                at("_ZN8tcmalloc17tcmalloc_internal7Sampler20RecordAllocationSlowEm"),
                SamplerReport::Draw { size: argument(1) },
            ),
            (
                at("_ZN8tcmalloc17tcmalloc_internal4Span6SampleEPNS0_17SampledAllocationE"),
                SamplerReport::Alloc { block: argument(0), sizes: None, list: None },
            ),
        ];
        assert_eq!(reports(&found), expected);
        assert_eq!((found.extra, found.interval.virt.0), (1, at(&variable)));
    }
}

#[test]
fn tcmalloc_without_an_interval_is_refused() {
    let options = ["-DUNSAMPLE=\"_ZN8tcmalloc17tcmalloc_internal4Span8UnsampleEv\"", "-DINTERVAL=\"other\""];
    let (_scratch, path) = compile(TCMALLOC, &options);
    assert_eq!(refusal(&path), "Parameters::profile_sampling_interval_ has no symbol or no code");
}

#[test]
fn jemalloc_with_a_prefix_is_found_by_its_release() {
    let refused = |options: &[&str]| refusal(&compile(JEMALLOC, options).1);
    let (_scratch, path) = compile(JEMALLOC, &["-DSIZE=\"100\"", "-DNEW"]);
    assert_eq!(only(&path).interval.virt.0, by_nm(&path)["mine_lg_prof_sample"]);
    assert_eq!(refused(&["-DSIZE=\"100\""]), "jemalloc is older than 5.3, and does not report which sample is freed");
    assert_eq!(refused(&["-DSIZE=\"1\"", "-DNEW"]), "jemalloc was built without profiling (--enable-prof)");
}

#[test]
fn copy_without_profiling_hides_no_sampler() {
    let (_scratch, path) = compile(JEMALLOC, &["-DSIZE=\"100\"", "-DNEW", "-DBUNDLED"]);
    assert_eq!(only(&path).interval.virt.0, by_nm(&path)["mine_lg_prof_sample"]);
    let (_scratch, path) = compile(JEMALLOC, &["-DSIZE=\"1\"", "-DNEW", "-DBUNDLED"]);
    assert_eq!(refusal(&path), "jemalloc was built without profiling (--enable-prof)");
}

#[test]
fn objects_without_a_usable_sampler_are_refused() {
    let without_symbols = |name: &str| {
        format!("the functions by which {name} reports its samples have no symbols, because the object is stripped")
    };
    assert_eq!(refusal(&library("libjemalloc.so")), without_symbols("jemalloc"));
    assert_eq!(refusal(&library("libtcmalloc.so")), without_symbols("tcmalloc"));
    let none = "the object has no allocator that samples";
    assert_eq!(refusal(Path::new(GLIBC)), none);
    let (_scratch, path) = compile(MAIN, &[]);
    assert_eq!(refusal(&path), none);
    let (_scratch, minimal) = compile(MAIN, &["-l:libtcmalloc_minimal.a", "-lstdc++", "-lm"]);
    assert_eq!(refusal(&minimal), "libtcmalloc_minimal is built without a sampler");
}

#[test]
fn clones_with_other_arguments_are_not_the_function() {
    const NAME: &str = "_ZN12_GLOBAL__N_1L13do_free_pagesEPN8tcmalloc4SpanEPv";
    let is_function = |suffix| is_gperftools_free(&format!("{NAME}{suffix}"));
    let suffixes = ["", ".constprop.0", ".constprop.12", ".isra.0", ".part.0", ".constprop.0.cold", ".cold", "x"];
    assert_eq!(suffixes.map(is_function), [true, true, true, false, false, false, false, false]);
}

proptest! {
    #[test]
    fn damaged_objects_cause_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        static FILE: LazyLock<Vec<u8>> =
            LazyLock::new(|| fs::read(compile(JEMALLOC, &["-DSIZE=\"100\"", "-DNEW"]).1).unwrap());
        let mut file = FILE.clone();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(found) = find_samplers(&file[..]) {
            prop_assert!(found.iter().flat_map(|one| &one.functions).all(|one| one.offset.0 < file.len() as u64));
        }
    }
}
