//! Stacks through Java code. Compiled code keeps no frame pointer, unless an option of Java requests it.

use harness::Scratch;
use memtrace_model::NoPerfMap;

use super::*;

/// Bit of a frame that was found by frame pointer (`split_frame`).
const FRAME_BY_FP: u64 = 1 << 63;

/// Perf map of the JIT code: `compiled` is at 0x1000, `Interpreter` at 0x2000.
const PERF_MAP: &str = "1000 100 compiled\n2000 100 Interpreter\n";

/// Returns the profile of one stack in an image with JIT code.
fn profile_with_code(code: &GeneratedCode, frames: &[AbsAddr], images: &BTreeMap<ImageId, ProcessImage>) -> Profile {
    let code_of = |_, image: &ProcessImage| ImageCode::new(image, Some(code), &AllFiles);
    profile_by(&symbolizer(), snapshot(frames), images, code_of, &(Tick(0)..Tick(1)))
}

/// Symbolizes a stack of a process that maps `library` at 0x9000 and has JIT code from 0x1000 to 0x2fff. `frames` are
/// leaf first. `keeps` is true if compiled code keeps frame pointers. Returns the names of the frames, outermost
/// first, the stack end, and the notes.
fn symbolized(library: &str, keeps: bool, frames: &[u64]) -> (Vec<String>, StackEnd, Vec<String>) {
    let scratch = Scratch::new();
    let mapping = |start: u64, end: u64, object| Mapping {
        start: AbsAddr(start),
        end: AbsAddr(end),
        offset: FileOffset(0),
        object,
    };
    let library = Object { path: PathBuf::from(library), handle: None, build_id: None, root: None };
    let mappings = vec![mapping(0x1000, 0x3000, None), mapping(0x9000, 0xa000, Some(Arc::new(library)))];
    let images = BTreeMap::from([(IMAGE, ProcessImage { mappings, ..ProcessImage::default() })]);
    let code = GeneratedCode {
        perf_map: Ok(scratch.write("map", PERF_MAP.as_bytes())),
        jitdumps: Vec::new(),
        clock_start: Duration::ZERO,
        keeps_frame_pointers: keeps,
    };
    let frames: Vec<_> = frames.iter().copied().map(AbsAddr).collect();
    let profile = profile_with_code(&code, &frames, &images);
    let names = profile.stacks[0].frames.iter().map(|id| profile.frames[id.index()].label());
    (names.collect(), profile.stacks[0].end, profile.run.notes)
}

/// Frames in the library, the interpreter, compiled code, and the library again, leaf first. The last two were found
/// by frame pointer.
const FRAMES: [u64; 4] = [0x9011, 0x2011, FRAME_BY_FP | 0x1011, FRAME_BY_FP | 0x9021];

#[test]
fn callers_of_compiled_java_code_are_left_out() {
    let (names, end, notes) = symbolized("/jvm/libjvm.so", false, &FRAMES);
    assert_eq!(
        (names, end),
        (["compiled", "Interpreter", "libjvm.so+0x10"].map(String::from).to_vec(), StackEnd::GeneratedCut)
    );
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("-XX:+PreserveFramePointer"), "{notes:?}");
}

#[test]
fn callers_of_code_with_frame_pointers_are_kept() {
    for (library, keeps) in [("/jvm/libjvm.so", true), ("/lib/libother.so", false)] {
        let (names, end, notes) = symbolized(library, keeps, &FRAMES);
        assert_eq!((names.len(), end, notes.len()), (4, StackEnd::Complete, 0));
    }
}

#[test]
fn refused_perf_map_is_noted() {
    let mappings = vec![Mapping { start: AbsAddr(0x1000), end: AbsAddr(0x3000), offset: FileOffset(0), object: None }];
    let code = GeneratedCode {
        perf_map: Err(NoPerfMap::NotOwned),
        jitdumps: Vec::new(),
        clock_start: Duration::ZERO,
        keeps_frame_pointers: false,
    };
    let images = BTreeMap::from([(IMAGE, ProcessImage { comm: "app".into(), mappings, ..ProcessImage::default() })]);
    let notes = profile_with_code(&code, &[AbsAddr(0x1011)], &images).run.notes;
    assert_eq!(notes, ["app (pid 7): its perf map belongs to another user and was not read"]);
}
