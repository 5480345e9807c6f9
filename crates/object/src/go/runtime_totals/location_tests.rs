//! Location of the totals in executables that have the functions that account for spans, and nothing else. The encodings were
//! worked out by hand.

#![cfg(target_arch = "x86_64")]

use super::*;

/// Address of the totals in most tests.
const TOTALS: u64 = 0x40_3000;
/// Addresses of the code and of the data. The variables of the totals follow the data that is in the file.
const CODE: u64 = 0x40_1000;
const DATA: u64 = 0x40_2000;
/// Size of the data in memory.
const MEMORY: u64 = 0x3000;
/// Place of the table of functions in the data.
const TABLE: u64 = 0x100;
/// Size of each function in bytes.
const FUNCTION: usize = 64;

const ACQUIRE: &str = "runtime.(*consistentHeapStats).acquire";
const RELEASE: &str = "runtime.(*consistentHeapStats).release";

/// What an executable has.
#[derive(Clone, Debug)]
struct FakeProgram {
    version: &'static str,
    /// Size of the structures, and offset of the index, in the code of `acquire`.
    stride: u32,
    index: u32,
    /// Names of the functions, and the address that each passes to `acquire` and to `release`. The first two functions
    /// are `acquire` and `release`.
    functions: Vec<(&'static str, u64)>,
}

impl FakeProgram {
    /// Returns a program of Go 1.24.
    fn new() -> Self {
        let names = [
            ACQUIRE,
            RELEASE,
            "main.main",
            "runtime.(*mheap).grow",
            "runtime.(*mheap).growth",
            "runtime.(*mheap).allocSpan",
            "runtime.(*mcache).refill",
        ];
        let functions = names.into_iter().map(|name| (name, TOTALS)).collect();
        Self { version: "go1.24.11", stride: 0x498, index: 0xdc8, functions }
    }

    /// Returns the bytes of the file.
    fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; 0x3000];
        self.put_headers(&mut file);
        for index in 0..self.functions.len() {
            put(&mut file, 0x1000 + index * FUNCTION, &self.code(index));
        }
        put(&mut file, 0x2000, b"\xff Go buildinf:\x08\x02");
        put(&mut file, 0x2020, &[u8::try_from(self.version.len()).unwrap()]);
        put(&mut file, 0x2021, self.version.as_bytes());
        put(&mut file, 0x2000 + TABLE as usize, &self.table());
        file
    }

    fn put_headers(&self, file: &mut [u8]) {
        put(file, 0, b"\x7fELF\x02\x01\x01");
        // Type, machine and version; entry; places of program and section headers; flags; sizes and numbers of headers.
        put(file, 16, &[2, 0, 62, 0, 1, 0, 0, 0]);
        put(file, 24, &words(&[CODE, 64, 0]));
        put(file, 52, &[64, 0, 56, 0, 3, 0, 64, 0, 0, 0, 0, 0]);
        // Type and flags; place in the file; address, twice; size in the file and in memory; alignment.
        let segments = [
            ([1, 5], [0x1000, CODE, CODE, 0x1000, 0x1000, 0x1000]),
            ([1, 6], [0x2000, DATA, DATA, 0x1000, MEMORY, 0x1000]),
            ([4, 4], [0x200, 0x40_0200, 0x40_0200, 24, 24, 4]),
        ];
        for (number, (kind, numbers)) in segments.into_iter().enumerate() {
            put(file, 64 + 56 * number, &[kind[0], 0, 0, 0, kind[1], 0, 0, 0]);
            put(file, 72 + 56 * number, &words(&numbers));
        }
        // Sizes of owner and content, type, owner, content.
        put(file, 0x200, &[3, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0]);
        put(file, 0x20c, b"Go\0\0abcd/efg");
    }

    fn address(&self, name: &str) -> Option<u64> {
        let index = self.functions.iter().position(|(other, _)| *other == name)?;
        Some(CODE + (index * FUNCTION) as u64)
    }

    fn code(&self, index: usize) -> Vec<u8> {
        let (name, argument) = self.functions[index];
        let mut code = Vec::new();
        if name == ACQUIRE {
            // mov index(%rax),%ecx; imul $stride,%rcx,%rcx.
            code.extend([&[0x8b, 0x88][..], &self.index.to_le_bytes()].concat());
            code.extend([&[0x48, 0x69, 0xc9][..], &self.stride.to_le_bytes()].concat());
        } else if name != RELEASE {
            for callee in [ACQUIRE, RELEASE].into_iter().filter_map(|callee| self.address(callee)) {
                let mut put = |opcode: &[u8], target: u64| {
                    code.extend(opcode);
                    let next = CODE + (index * FUNCTION + code.len() + 4) as u64;
                    let distance = i32::try_from(target.cast_signed() - next.cast_signed()).unwrap();
                    code.extend(distance.to_le_bytes());
                };
                // lea argument(%rip),%rax; call callee.
                put(&[0x48, 0x8d, 0x05], argument);
                put(&[0xe8], callee);
            }
        }
        // ret; int3.
        code.push(0xc3);
        code.resize(FUNCTION, 0xcc);
        code
    }

    /// Returns the table of functions of Go 1.20 and later.
    fn table(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut starts = Vec::new();
        for (name, _) in &self.functions {
            starts.push(u32::try_from(names.len()).unwrap());
            names.extend(name.as_bytes());
            names.push(0);
        }
        let count = self.functions.len();
        let list = 8 * count + 4;
        let (mut entries, mut records) = (Vec::new(), Vec::new());
        for (index, start) in starts.into_iter().enumerate() {
            let entry = u32::try_from(index * FUNCTION).unwrap();
            let record = u32::try_from(list + records.len()).unwrap();
            entries.extend([entry, record].map(u32::to_le_bytes).concat());
            // Address and name. The other words of a record are not read.
            records.extend([entry, start].map(u32::to_le_bytes).concat());
        }
        entries.extend(u32::try_from(count * FUNCTION).unwrap().to_le_bytes());
        let functions = 72 + names.len() as u64;
        let header = [count as u64, 0, CODE, 72, functions, functions, functions, functions];
        [&[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8][..], &words(&header), &names, &entries, &records].concat()
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the address and the number of words of the totals, or the reason.
fn location(program: &FakeProgram) -> Result<(u64, usize), String> {
    let found = TotalsLocation::find(program.bytes().as_slice()).map_err(|refusal| refusal.to_string())?;
    assert_eq!(found.version().to_string(), program.version);
    Ok((found.virt().0, found.words()))
}

#[test]
fn totals_are_located_by_the_code() {
    let old = FakeProgram::new();
    assert_eq!(location(&old), Ok((TOTALS, 449)));
    let new = FakeProgram { version: "go1.27.3 X:nogreenteagc", stride: 0x490, index: 0xdb0, ..old.clone() };
    assert_eq!(location(&new), Ok((TOTALS, 446)));
    // For Go 1.25, the version allows both layouts, and the code alone decides.
    let version = "go1.25-20250209-RC00 cl/724970549 +ff27d270c9";
    assert_eq!(location(&FakeProgram { version, ..old.clone() }), Ok((TOTALS, 449)));
    assert_eq!(location(&FakeProgram { version, ..new.clone() }), Ok((TOTALS, 446)));
    // The whole variable is in the segment.
    let mut last = old;
    last.functions.iter_mut().for_each(|(_, argument)| *argument = 0x40_5000 - 449 * 8);
    assert_eq!(location(&last), Ok((0x40_5000 - 449 * 8, 449)));
}

#[test]
fn location_without_a_proof_is_refused() {
    let refusal = |change: fn(&mut FakeProgram)| {
        let mut program = FakeProgram::new();
        change(&mut program);
        location(&program).unwrap_err()
    };
    let no_variable = TotalsRefusal::NoVariable.to_string();
    assert_eq!(refusal(|program| program.functions[5].1 += 8), no_variable, "the callers disagree");
    assert_eq!(refusal(|program| program.functions.truncate(5)), no_variable, "there is one caller");
    assert_eq!(refusal(|program| program.functions[0].0 = "runtime.(*consistentHeapStats).acquir"), no_variable);
    assert_eq!(refusal(|program| program.functions[1].0 = "runtime.(*consistentHeapStats).released"), no_variable);
    let layout = TotalsRefusal::Layout.to_string();
    assert_eq!(refusal(|program| program.stride = 0x490), layout);
    assert_eq!(refusal(|program| program.index = 0xdb0), layout);
    assert_eq!(refusal(|program| program.version = "go1.26.6"), layout);
    let at = |address: u64| {
        let mut program = FakeProgram::new();
        program.functions.iter_mut().for_each(|(_, argument)| *argument = address);
        location(&program).unwrap_err()
    };
    let outside = TotalsRefusal::Outside.to_string();
    // After the segment, in the code, and not aligned.
    assert_eq!([0x40_5008 - 449 * 8, 0x40_1000, 0x40_3004].map(at), [(); 3].map(|()| outside.clone()));
    let unknown = refusal(|program| program.version = "go1.28");
    assert_eq!(unknown, "the layout of the totals of go1.28 is not known");
}

#[test]
fn damaged_programs_cause_no_panic() {
    let bytes = FakeProgram::new().bytes();
    for at in (0..0x240).chain(0x1000..0x1200).chain(0x2000..0x2400) {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            // Neither a panic nor a long search.
            let _ = TotalsLocation::find(damaged.as_slice());
        }
    }
    for length in (0..bytes.len()).step_by(61) {
        assert!(TotalsLocation::find(&bytes[..length]).is_err(), "{length}");
    }
}
