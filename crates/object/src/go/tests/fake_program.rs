//! Executables with the parts of a Go program that are read: build information, the table of functions, the data of the module, and
//! the code of some functions of the runtime.

/// Address of the executable. It has one segment.
const BASE: u64 = 0x40_0000;
/// Addresses of the variables. The initial rate is in the file.
pub(super) const RATE: u64 = BASE + VARIABLES as u64;
pub(super) const BUCKETS: u64 = 0x41_0000;
const FIRST_CACHE: u64 = 0x41_0008;
pub(super) const CYCLE: u64 = 0x41_0010;
/// Size of the segment in memory, with the variables that are not in the file.
const MEMORY: u64 = 0x2_0000;

/// Places in the file.
const NOTE: usize = 0xc0;
const BUILD_INFO: usize = 0x100;
const TEXT: usize = 0x200;
const TABLE: usize = 0x400;
const DATA: usize = 0x900;
const MODULE: usize = 0xa00;
const VARIABLES: usize = 0xc00;
const SYMBOLS: usize = 0xd00;
const SYMBOL_NAMES: usize = 0xe00;
const SECTION_NAMES: usize = 0xf00;
const SECTIONS: usize = 0x1000;

/// Names of the functions, in the order of their code.
const FUNCTIONS: [&str; 8] = [
    "runtime.mProf_FlushLocked",
    "runtime.mProf_Flush",
    "runtime.profilealloc",
    "runtime.MemProfile",
    "runtime.mallocgc",
    "internal/runtime/maps.NewTable",
    "runtime.goexit",
    "main.main",
];
/// Size of the code of a function, except for the last one.
const SIZE: usize = 0x20;
const MAIN_SIZE: usize = 0x40;
/// Address of `main.main`.
pub(super) const MAIN: u64 = address_of(7);
/// Return addresses in functions of the runtime.
pub(super) const IN_MALLOC: u64 = address_of(4) + 9;
pub(super) const IN_MAPS: u64 = address_of(5) + 3;
pub(super) const IN_GOEXIT: u64 = address_of(6) + 1;

/// Return addresses of a call in `main.inner`, which is inlined in `main.outer`, which is inlined in `main.main`, as
/// the runtime records them: the return address of the call, and the addresses of the instructions that stand for the
/// inlined calls, plus one.
pub(super) const INLINED: [u64; 3] = [MAIN + 0x25, MAIN + 0x19, MAIN + 0x09];

/// Tables of values by address (`pctab`). The first byte belongs to no table. The first three tables are: file 0 for 0x20 bytes,
/// file 0 for 0x40 bytes, and line 5 for 0x20 bytes.
const FILE: u32 = 1;
const FILE_OF_MAIN: u32 = 4;
const LINE: u32 = 7;
/// Lines 10, 20, 30 and 11 of `main.main`: 0x10 bytes each.
const LINES_OF_MAIN: u32 = 10;
/// Inlined calls -1, 0, 1 and -1 of `main.main`.
const INLINED_CALLS: u32 = 19;
const VALUES: &[u8] = &[
    0, 2, 0x20, 0, 2, 0x40, 0, 12, 0x20, 0, // the short ones
    22, 0x10, 20, 0x10, 20, 0x10, 37, 0x10, 0, // the lines
    0, 0x10, 2, 0x10, 2, 0x10, 3, 0x10, 0, // the inlined calls
];

/// Offset of the inlined calls in the data of functions.
const INLINE_TREE: usize = 0x10;

const fn address_of(function: usize) -> u64 {
    BASE + (TEXT + function * SIZE) as u64
}

/// Contents of an executable.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeProgram {
    pub(super) version: &'static str,
    pub(super) minor: u32,
    /// True for symbols of the variables.
    pub(super) has_symbols: bool,
    /// True for section headers.
    pub(super) has_sections: bool,
    /// True if the program can read its profile.
    pub(super) imports_pprof: bool,
}

impl FakeProgram {
    pub(super) const fn new(version: &'static str, minor: u32) -> Self {
        Self { version, minor, has_symbols: true, has_sections: true, imports_pprof: true }
    }

    /// Returns the bytes of the file.
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut file = vec![0; SECTIONS];
        put_headers(&mut file, self.has_sections);
        put(&mut file, NOTE, &[3, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, b'G', b'o', 0, 0]);
        put(&mut file, NOTE + 16, b"abcd/efg");
        put(&mut file, BUILD_INFO, b"\xff Go buildinf:\x08\x02");
        put(&mut file, BUILD_INFO + 32, &[u8::try_from(self.version.len()).unwrap()]);
        put(&mut file, BUILD_INFO + 33, self.version.as_bytes());
        put_code(&mut file);
        let (table, parts) = self.table();
        put(&mut file, TABLE, &table);
        self.put_inlined_calls(&mut file);
        self.put_module(&mut file, parts);
        put(&mut file, VARIABLES, &(512_u64 << 10).to_le_bytes());
        if self.has_sections {
            self.put_sections(&mut file, table.len());
        }
        file
    }

    fn is_from_1_20(self) -> bool {
        self.minor >= 20
    }

    /// Returns the table of functions, and the offsets of its parts.
    fn table(self) -> (Vec<u8>, [usize; 5]) {
        let names = names().concat();
        let units = (72 + names.len()).next_multiple_of(8);
        // The number of the only file, and its path.
        let (files, path) = (units + 4, b"/src/main.go\0");
        let values = files + path.len();
        let functions = (values + VALUES.len()).next_multiple_of(8);
        let parts = [72, units, files, values, functions];
        let text = if self.minor < 26 { BASE + TEXT as u64 } else { 0 };
        let mut table = vec![if self.is_from_1_20() { 0xf1 } else { 0xf0 }, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        for word in [FUNCTIONS.len() as u64, 1, text].into_iter().chain(parts.map(|part| part as u64)) {
            table.extend(word.to_le_bytes());
        }
        table.resize(functions, 0);
        put(&mut table, 72, &names);
        put(&mut table, files, path);
        put(&mut table, values, VALUES);
        self.append_functions(&mut table, functions);
        (table, parts)
    }

    /// Appends the list of functions, and their records.
    fn append_functions(self, table: &mut Vec<u8>, start: usize) {
        let list = FUNCTIONS.len() * 8 + 4;
        table.resize(start + list, 0);
        for (index, function) in FUNCTIONS.into_iter().enumerate() {
            let record = table.len() - start;
            put(table, start + 8 * index, &number(index * SIZE));
            put(table, start + 8 * index + 4, &number(record));
            let is_main = index == FUNCTIONS.len() - 1;
            let (file, lines) = if is_main { (FILE_OF_MAIN, LINES_OF_MAIN) } else { (FILE, LINE) };
            // The name that begins one byte later is not the name of a function of the runtime.
            let is_other = !self.imports_pprof && function == "runtime.MemProfile";
            let name = u32::try_from(name_offset(index)).unwrap() + u32::from(is_other);
            let (tables, data) = if is_main { (3, 4) } else { (0, 0) };
            // entryOff, nameOff, args, deferreturn, pcsp, pcfile, pcln, npcdata, cuOffset, startLine.
            let mut words = vec![u32::try_from(index * SIZE).unwrap(), name, 0, 0, 0, file, lines, tables, 0];
            if self.is_from_1_20() {
                words.push(1);
            }
            // funcID, flag, a filler, nfuncdata.
            words.push(u32::from_le_bytes([0, 0, 0, data]));
            if is_main {
                words.extend([0, 0, INLINED_CALLS]);
                words.extend([u32::MAX, u32::MAX, u32::MAX, u32::try_from(INLINE_TREE).unwrap()]);
            }
            words.iter().for_each(|word| table.extend(word.to_le_bytes()));
        }
        put(table, start + 8 * FUNCTIONS.len(), &number(end_of_code()));
    }

    /// Writes the calls of `main.outer` at line 10 of `main.main`, and of `main.inner` at line 20 of `main.outer`.
    fn put_inlined_calls(self, file: &mut [u8]) {
        let calls = [(name_offset(8), 0x08), (name_offset(9), 0x18)];
        for (index, (name, caller)) in calls.into_iter().enumerate() {
            let start = DATA + INLINE_TREE;
            if self.is_from_1_20() {
                put(file, start + 16 * index + 4, &number(name));
                put(file, start + 16 * index + 8, &number(caller));
            } else {
                put(file, start + 20 * index + 12, &number(name));
                put(file, start + 20 * index + 16, &number(caller));
            }
        }
    }

    fn put_module(self, file: &mut [u8], parts: [usize; 5]) {
        let table = BASE + TABLE as u64;
        let [names, _, _, _, functions] = parts.map(|part| table + part as u64);
        let function_data = match self.minor {
            19 => 38,
            27 => 43,
            _ => 40,
        };
        let (text, end) = (BASE + TEXT as u64, BASE + (TEXT + end_of_code()) as u64);
        let data = BASE + DATA as u64;
        let words =
            [(0, table), (1, names), (13, functions), (16, functions), (22, text), (23, end), (function_data, data)];
        for (index, word) in words {
            put(file, MODULE + 8 * index, &word.to_le_bytes());
        }
    }

    fn put_sections(self, file: &mut Vec<u8>, table: usize) {
        let variables =
            [("runtime.mbuckets", BUCKETS, 8), ("runtime.MemProfileRate", RATE, 8), ("runtime.mProfCycle", CYCLE, 4)];
        let mut name = 1;
        for (index, (text, address, size)) in variables.into_iter().enumerate() {
            put(file, SYMBOL_NAMES + name, text.as_bytes());
            // st_name, st_info (STT_OBJECT), st_other, st_shndx, st_value, st_size.
            let symbol =
                [&number(name)[..], &[1, 0, 1, 0], &u64::to_le_bytes(address), &u64::to_le_bytes(size)].concat();
            put(file, SYMBOLS + 24 * (index + 1), &symbol);
            name += text.len() + 1;
        }
        let symbols = if self.has_symbols { 2 } else { 0 };
        let sections = [
            ("", 0, 0, 0, 0),
            (".go.buildinfo", 1, BUILD_INFO, 0x100, 0),
            (".gopclntab", 1, TABLE, table, 0),
            (".symtab", symbols, SYMBOLS, 24 * 4, 4),
            (".strtab", 3, SYMBOL_NAMES, 0x100, 0),
            (".shstrtab", 3, SECTION_NAMES, 0x100, 0),
        ];
        let mut name = 0;
        for (text, kind, offset, size, link) in sections {
            put(file, SECTION_NAMES + name, text.as_bytes());
            // sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize.
            file.extend([number(name), number(kind)].concat());
            for word in [0, BASE + offset as u64, offset as u64, size as u64, link, 1, 0] {
                file.extend(u64::to_le_bytes(word));
            }
            name += text.len() + 1;
        }
    }
}

/// Returns the names of all functions, with a zero after each.
fn names() -> Vec<Vec<u8>> {
    let all = FUNCTIONS.into_iter().chain(["main.outer", "main.inner"]);
    all.map(|name| [name.as_bytes(), &[0]].concat()).collect()
}

fn name_offset(index: usize) -> usize {
    names()[..index].iter().map(Vec::len).sum()
}

fn end_of_code() -> usize {
    (FUNCTIONS.len() - 1) * SIZE + MAIN_SIZE
}

/// Writes code that loads the variables, and returns.
fn put_code(file: &mut [u8]) {
    file[TEXT..TEXT + end_of_code()].fill(0xc3);
    // mov BUCKETS(%rip),%rcx; mov CYCLE(%rip),%eax; mov FIRST_CACHE(%rip),%rdx; mov RATE(%rip),%rsi.
    let loads: [(usize, usize, &[u8], u64); 4] = [
        (0, 0, &[0x48, 0x8b, 0x0d], BUCKETS),
        (1, 0, &[0x8b, 0x05], CYCLE),
        (2, 0, &[0x48, 0x8b, 0x15], FIRST_CACHE),
        (2, 7, &[0x48, 0x8b, 0x35], RATE),
    ];
    for (function, at, opcode, variable) in loads {
        let next = address_of(function) + (at + opcode.len() + 4) as u64;
        let distance = i32::try_from(variable.cast_signed() - next.cast_signed()).unwrap();
        put(file, TEXT + function * SIZE + at, &[opcode, &distance.to_le_bytes()].concat());
    }
}

fn put_headers(file: &mut [u8], has_sections: bool) {
    let (machine, size) = (if cfg!(target_arch = "aarch64") { 183 } else { 62 }, file.len() as u64);
    put(file, 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    // e_type, e_machine, e_version, e_entry, e_phoff, e_shoff.
    put(file, 16, &[2, 0, machine, 0, 1, 0, 0, 0]);
    put(file, 24, &address_of(7).to_le_bytes());
    put(file, 32, &64_u64.to_le_bytes());
    put(file, 40, &(if has_sections { SECTIONS as u64 } else { 0 }).to_le_bytes());
    // e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx.
    let sections = if has_sections { [64, 0, 6, 0, 5, 0] } else { [64, 0, 0, 0, 0, 0] };
    put(file, 52, &[&[64, 0, 56, 0, 2, 0][..], &sections].concat());
    // p_type and p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align.
    let load = [1 | (7 << 32), 0, BASE, BASE, size, MEMORY, 4096];
    let note = [4 | (4 << 32), NOTE as u64, BASE + NOTE as u64, BASE + NOTE as u64, 24, 24, 4];
    for (index, word) in load.into_iter().chain(note).enumerate() {
        put(file, 64 + 8 * index, &u64::to_le_bytes(word));
    }
}

fn put(bytes: &mut [u8], at: usize, content: &[u8]) {
    bytes[at..at + content.len()].copy_from_slice(content);
}

fn number(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap().to_le_bytes()
}
