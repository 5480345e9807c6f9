mod hostile;
mod hotspot;
mod program;
mod split;

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::{ChangesInParts, CompletedImage, EndedProcesses, EndedSettings, ExactTotals, NamedClasses};
use memtrace_model::{
    AbsAddr, Amount, BuildId, Bytes, EventClass, GeneratedCode, ImageEnd, ImageId, ImageUsage, Location, Mapping, Pid,
    ProcessImage, Profile, Quantities, Quantity, RunFacts, Snapshot, Snapshots, Stack, StackEnd, StackId, Stacks, Tick,
};

use program::{Program, SOURCE, image_of_maps, line, run};

use super::*;
use crate::object_files::AllFiles;

const IMAGE: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

/// Returns a snapshot of one image with one stack. `addresses` are its frames, leaf first.
fn snapshot(addresses: &[AbsAddr]) -> Snapshot {
    snapshot_at(Duration::ZERO, addresses)
}

fn snapshot_at(taken: Duration, addresses: &[AbsAddr]) -> Snapshot {
    let usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, Amount::one(Bytes(64)))
        .with_amount(Quantity::AllocBytes, Amount::one(Bytes(64)))
        .with_free(Amount::default());
    let id = StackId(100);
    let stack = Stack { frames: addresses.into(), end: StackEnd::Complete, taken };
    let by_stack = BTreeMap::from([(id.into(), usage.with(Quantity::AtPeakBytes, 0))]);
    Snapshot {
        images: BTreeMap::from([(IMAGE, ImageUsage { total: usage, by_stack, ..ImageUsage::default() })]),
        stacks: Stacks::from([(id, stack)]),
        ..Snapshot::default()
    }
}

/// Returns the profile of a snapshot in a run without ended images.
fn profile_of(
    symbolizer: &Symbolizer,
    snapshot: Snapshot,
    images: &BTreeMap<ImageId, ProcessImage>,
    window: &Range<Tick>,
) -> Profile {
    profile_by(symbolizer, snapshot, images, |_, image| ImageCode::new(image, None, &AllFiles), window)
}

/// As [`profile_of`], for images with JIT code, which `code_of` returns.
fn profile_by<'a>(
    symbolizer: &Symbolizer,
    snapshot: Snapshot,
    images: &BTreeMap<ImageId, ProcessImage>,
    code_of: impl Fn(ImageId, &ProcessImage) -> ImageCode<'a>,
    window: &Range<Tick>,
) -> Profile {
    let snapshots = Snapshots([(EventClass::Heap, snapshot)].into());
    let end = ExactTotals::new(snapshots, images, code_of, no_ended(), window, ChangesInParts::default());
    NamedClasses::new(&end, symbolizer).take(EventClass::Heap).into_profile(RunFacts::default(), Vec::new(), |_| None)
}

fn no_ended() -> EndedProcesses {
    let settings = EndedSettings {
        keep: 1000,
        max_stack_entries: 1 << 20,
        max_call_paths: 1 << 20,
        max_name_bytes: 1 << 20,
        start: Tick::default(),
    };
    EndedProcesses::new(settings)
}

/// Returns the frames of `address`, outermost first.
fn frames_at(symbolizer: &Symbolizer, image: &ProcessImage, address: AbsAddr) -> Vec<Frame> {
    let images = BTreeMap::from([(IMAGE, image.clone())]);
    let profile = profile_of(symbolizer, snapshot(&[address]), &images, &(Tick(0)..Tick(1)));
    profile.stacks[0].frames.iter().map(|id| profile.frames[id.index()].clone()).collect()
}

const FINDER: FindInProcess =
    FindInProcess { path_of: |file| memtrace_host::procfs::descriptor_path(file), opens_others: true };

/// Returns a finder in this process.
fn finder() -> Box<dyn FunctionFinder> {
    Box::new(FINDER)
}

/// Returns a symbolizer that does not use the host's debug files.
fn symbolizer() -> Symbolizer {
    Symbolizer::with_debug_directories(&AllFiles, finder(), Vec::new())
}

/// Returns the name of each frame, its source line, and true if it is inlined.
fn brief(frames: &[Frame]) -> Vec<(&str, Option<u32>, bool)> {
    frames
        .iter()
        .map(|frame| {
            let name = frame.name.as_ref().map_or("", |name| name.0.as_str());
            (name, frame.location.as_ref().and_then(|location| location.line), frame.inlined)
        })
        .collect()
}

fn outer_with_inlined() -> [(&'static str, Option<u32>, bool); 3] {
    [
        ("outer", Some(line("outer")), false),
        ("inner", Some(line("inner")), true),
        ("innermost", Some(line("innermost")), true),
    ]
}

#[test]
fn inlined_functions_are_frames_with_their_lines() {
    for flags in [["-g", "-gdwarf-4"], ["-g", "-gdwarf-5"]] {
        let program = Program::new(&flags);
        let image = program.image(Some(program.path()), None);
        let symbolizer = symbolizer();
        let frames = frames_at(&symbolizer, &image, program.returns[0]);
        assert_eq!(brief(&frames), outer_with_inlined());
        let source = program.scratch.file("program.c");
        assert!(frames.iter().all(|frame| frame.location.as_ref().unwrap().file == source));
        assert!(frames.iter().all(|frame| frame.object.as_ref().unwrap().path == program.path()));
        let frames = frames_at(&symbolizer, &image, program.returns[1]);
        assert_eq!(brief(&frames), [("plain", Some(line("plain")), false)]);
    }
}

#[test]
fn addr2line_finds_the_same_line_by_the_frame_offset() {
    let program = Program::new(&["-g"]);
    let image = program.image(Some(program.path()), None);
    let frames = frames_at(&symbolizer(), &image, program.returns[1]);
    let offset = frames[0].offset.unwrap().to_string();
    let found = run("addr2line", &["-f", "-e", program.path().to_str().unwrap(), &offset]);
    let mut lines = found.lines();
    assert_eq!(lines.next(), Some("plain"));
    assert!(lines.next().unwrap().starts_with(&format!(
        "{}:{}",
        program.scratch.file("program.c").display(),
        line("plain")
    )));
}

#[test]
fn symbol_table_names_are_demangled() {
    let program = Program::new(&[]);
    let image = program.image(Some(program.path()), None);
    let symbolizer = symbolizer();
    let name_at = |&address: &AbsAddr| {
        let frames = frames_at(&symbolizer, &image, address);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].location, None);
        frames[0].name.clone().unwrap().0
    };
    let names: Vec<_> = program.returns.iter().map(name_at).collect();
    assert_eq!(names, ["outer", "plain", "store::add(unsigned long, int)", "mycrate::cache::insert"]);
}

/// C functions with names that are types, operators or substitutions in the C++ ABI.
const C_NAMES: [&str; 12] = ["a", "b", "f", "h", "i", "j", "v", "w", "z", "St", "Sa", "Pf"];

#[test]
fn names_of_c_functions_are_not_demangled() {
    let functions =
        C_NAMES.map(|name| format!("__attribute__((noipa)) int {name}(int n) {{ return print_return(n) * 2; }}\n"));
    let calls = C_NAMES.map(|name| format!("    n += {name}(n);\n"));
    let (start, _) = SOURCE.split_once("INLINED int innermost").unwrap();
    let (_, end) = SOURCE.split_once("rust(5);\n").unwrap();
    let source = format!("{start}{}int main(void) {{\n    int n = 1;\n{}{end}", functions.concat(), calls.concat());
    for flags in [[].as_slice(), &["-g"]] {
        let program = Program::compile(&source, flags);
        let image = program.image(Some(program.path()), None);
        let names: Vec<_> = program
            .returns
            .iter()
            .map(|&address| frames_at(&symbolizer(), &image, address)[0].name.clone().unwrap().0)
            .collect();
        assert_eq!(names, C_NAMES, "{flags:?}");
    }
}

#[test]
fn a_deleted_file_is_read_by_its_open_descriptor() {
    let program = Program::new(&["-g"]);
    let open = File::open(program.path()).unwrap();
    fs::remove_file(program.path()).unwrap();
    let handle = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let frames = frames_at(&symbolizer(), &program.image(Some(handle), None), program.returns[0]);
    assert_eq!(brief(&frames), outer_with_inlined());
    assert_eq!(frames[0].object.as_ref().unwrap().path, program.path());
}

#[test]
fn a_file_with_another_build_id_gives_no_names() {
    let program = Program::new(&["-g"]);
    let mut image = program.image(Some(program.path()), None);
    for mapping in &mut image.mappings {
        if mapping.object.as_ref().is_some_and(|object| object.path == program.path()) {
            let object =
                Object { build_id: Some(BuildId([1; 20].into())), ..(**mapping.object.as_ref().unwrap()).clone() };
            mapping.object = Some(Arc::new(object));
        }
    }
    let frames = frames_at(&symbolizer(), &image, program.returns[0]);
    assert_eq!(frames[0].name, Err(Unnamed::ObjectUnreadable));
}

/// The file of an object can be closed before its frames are symbolized.
#[test]
fn a_closed_file_is_opened_again_or_its_functions_have_no_names() {
    let program = Program::new(&["-g"]);
    let handle = program.scratch.file("handle");
    fs::hard_link(program.path(), &handle).unwrap();
    let Snapshot { images, stacks, .. } = snapshot(&[program.returns[1]]);
    let usage = images.into_values().map(|usage| (EventClass::Heap, usage)).collect();
    let image = program.image(Some(handle.clone()), None);
    let ended = CompletedImage { id: IMAGE, end: ImageEnd::Exit, at: Tick(1), image, usage, stacks };
    let profile = |closed: &str, symbolizer: &Symbolizer| {
        let mut processes = no_ended();
        processes.add(ended.clone(), &mut ImageCode::new(&ended.image, None, &AllFiles));
        processes.forget_files(&HashSet::from([program.scratch.file(closed)]));
        let end = ExactTotals::new(
            Snapshots::default(),
            &BTreeMap::new(),
            |_, image| ImageCode::new(image, None, &AllFiles),
            processes,
            &(Tick(0)..Tick(9)),
            Default::default(),
        );
        let mut classes = NamedClasses::new(&end, symbolizer);
        let profile = classes.take(EventClass::Heap).into_profile(RunFacts::default(), Vec::new(), |_| None);
        (profile.frames, profile.run.notes)
    };
    let name = |frame: &Frame| frame.name.clone().map(|name| name.0);
    let (frames, notes) = profile("other", &symbolizer());
    assert_eq!((name(&frames[0]), &notes[..]), (Ok(String::from("plain")), &[][..]));
    let (closed, notes) = profile("handle", &symbolizer());
    assert_eq!(closed, [Frame { location: None, name: Err(Unnamed::ObjectClosed), ..frames[0].clone() }]);
    let sentence = "the functions of 1 deleted object have no names, because too many deleted files were open";
    assert_eq!(notes, [sentence]);
    let reopen = |object: &Object| Some((File::open(&object.path).unwrap(), object.path.clone()));
    assert_eq!(profile("handle", &symbolizer().with_reopen(reopen)), (frames, Vec::new()));
}

#[test]
fn frames_without_a_name_keep_reason_and_address() {
    let program = Program::new(&["-g"]);
    let address = program.returns[1];
    let named = &frames_at(&symbolizer(), &program.image(Some(program.path()), None), address)[0];
    let symbolizer = symbolizer();

    let gone = &frames_at(&symbolizer, &program.image(None, None), address)[0];
    assert_eq!(gone.name, Err(Unnamed::ObjectUnreadable));
    assert_eq!(gone.object.as_ref().unwrap().path, program.path());
    // The linker of this machine places code at the address of its file offset.
    assert_eq!(gone.offset, named.offset);

    let mut image = program.image(None, None);
    for mapping in &mut image.mappings {
        mapping.object = None;
    }
    let generated = &frames_at(&symbolizer, &image, address)[0];
    assert_eq!((&generated.name, &generated.object), (&Err(Unnamed::Anonymous), &None));
    assert_eq!(generated.address, Some(AbsAddr(address.0 - 1)));

    let unmapped = &frames_at(&symbolizer, &ProcessImage::default(), address)[0];
    assert_eq!((&unmapped.name, unmapped.offset), (&Err(Unnamed::NoMapping), None));
    assert_eq!(unmapped.address, Some(AbsAddr(address.0 - 1)));
    assert_eq!(frames_at(&symbolizer, &ProcessImage::default(), AbsAddr(0))[0].address, Some(AbsAddr(0)));
}

#[test]
fn a_stack_is_symbolized_by_the_mappings_of_its_time() {
    let object = |name: &str| Arc::new(Object { path: PathBuf::from(name), handle: None, build_id: None, root: None });
    let mapping = |name: &str, offset| Mapping {
        start: AbsAddr(0x1000),
        end: AbsAddr(0x2000),
        offset: FileOffset(offset),
        object: Some(object(name)),
    };
    let mut image = ProcessImage { mappings: vec![mapping("libnow.so", 0x500)], ..ProcessImage::default() };
    image.replaced.add(mapping("libfirst.so", 0), Duration::from_nanos(5));
    image.replaced.add(mapping("libthen.so", 0x40), Duration::from_nanos(8));
    let labels = [4, 5, 7, 8].map(|tick| {
        let snapshot = snapshot_at(Duration::from_nanos(tick), &[AbsAddr(0x1235)]);
        let images = BTreeMap::from([(IMAGE, image.clone())]);
        let profile = profile_of(&symbolizer(), snapshot, &images, &(Tick(0)..Tick(9)));
        profile.frames[profile.stacks[0].frames[0].index()].label()
    });
    assert_eq!(labels, ["libfirst.so+0x234", "libthen.so+0x274", "libthen.so+0x274", "libnow.so+0x734"]);
}

#[test]
fn vdso_frames_are_labeled_by_object_and_offset() {
    let image = image_of_maps("7ffc0a000000-7ffc0a002000 r-xp 00000000 00:00 0 [vdso]\n");
    let frame = &frames_at(&symbolizer(), &image, AbsAddr(0x7ffc_0a00_0a11))[0];
    assert_eq!(frame.name, Err(Unnamed::KernelCode));
    assert_eq!(frame.label(), "[vdso]+0xa10");
}

#[test]
fn own_functions_have_the_names_and_lines_of_the_compiler() {
    // The first instruction has the line of the signature.
    #[inline(never)]
    fn here(number: u32) -> u32 {
        std::hint::black_box(number) + line!() - 1
    }
    let image = image_of_maps(&fs::read_to_string("/proc/self/maps").unwrap());
    let entry = here as fn(u32) -> u32 as usize as u64;
    let frames = frames_at(&symbolizer(), &image, AbsAddr(entry + 1));
    let name = "memtrace_object::symbolize::tests::own_functions_have_the_names_and_lines_of_the_compiler::here";
    assert_eq!(brief(&frames), [(name, Some(here(0)), false)]);
    let Location { file, .. } = frames[0].location.clone().unwrap();
    assert!(file.ends_with(file!()), "{}", file.display());
}
