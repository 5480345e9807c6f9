//! Parser for BTF, the kernel's type information (Documentation/bpf/btf.rst).
//!
//! The parser finds offsets of struct members (even inside anonymous structs and unions), values of enums, types of
//! tracepoint arguments, and functions.

use memtrace_common::wire::KernelMember;

const MAGIC: u16 = 0xeb9f;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_INT: u32 = 1;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_CONST: u32 = 10;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Parsed type information.
pub(super) struct Btf<'data> {
    /// Encoded types, ordered by id. The first id is 1.
    types: Vec<&'data [u8]>,
    names: &'data [u8],
}

fn word(data: &[u8], index: usize) -> Option<u32> {
    data.get(index * 4..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

impl<'data> Btf<'data> {
    /// Parses type information. Returns `None` if it is damaged.
    pub(super) fn parse(data: &'data [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(*data.first_chunk()?);
        if magic != MAGIC {
            return None;
        }
        let body = data.get(word(data, 1)? as usize..)?;
        let section = |offset: usize, length: usize| {
            let start = word(data, offset)? as usize;
            body.get(start..start.checked_add(word(data, length)? as usize)?)
        };
        let (mut rest, names) = (section(2, 3)?, section(4, 5)?);
        let mut types = Vec::new();
        while !rest.is_empty() {
            let length = type_length(rest)?;
            types.push(rest.get(..length)?);
            rest = &rest[length..];
        }
        Some(Self { types, names })
    }

    /// Returns the offset in bytes of `member` in the struct `name`. A member of a nested struct is a path with dots.
    pub(super) fn member_offset(&self, name: &str, member: &str) -> Option<u32> {
        let mut kind = self.find_type(KIND_STRUCT, name)?;
        let mut bits = 0u32;
        for member in member.split('.') {
            let (offset, inner) = self.find_member(kind, member, 0)?;
            bits = bits.checked_add(offset)?;
            kind = self.resolve_names(inner)?;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the offset of `member` in bytes. Uses the first name of the member that the kernel has.
    pub(super) fn offset_of(&self, member: KernelMember) -> Option<u32> {
        member.names.iter().find_map(|name| self.member_offset(member.structure, name))
    }

    /// Returns the name of the type of each tracepoint argument, or `None` if the kernel lacks the tracepoint. The name
    /// for a pointer is empty.
    pub(super) fn tracepoint_arguments(&self, tracepoint: &str) -> Option<Vec<&'data str>> {
        // `typedef void (*btf_trace_NAME)(void *, …)`, include/trace/bpf_probe.h.
        let pointer = self.type_by_id(word(self.find_type(KIND_TYPEDEF, &format!("btf_trace_{tracepoint}"))?, 2)?)?;
        let function = self.type_by_id(word(pointer, 2)?)?;
        if kind_of(function)? != KIND_FUNC_PROTO {
            return None;
        }
        let argument = |index: usize| self.name(word(self.type_by_id(word(function, 3 + index * 2 + 1)?)?, 0)?);
        (1..(word(function, 1)? & 0xffff) as usize).map(argument).collect()
    }

    /// Returns the value of `member` in the enum `name`.
    pub(super) fn enum_value(&self, name: &str, member: &str) -> Option<u32> {
        let kind = self.find_type(KIND_ENUM, name)?;
        let is_match =
            |index: &u32| word(kind, 3 + *index as usize * 2).and_then(|name| self.name(name)) == Some(member);
        let index = (0..word(kind, 1)? & 0xffff).find(is_match)?;
        word(kind, 3 + index as usize * 2 + 1)
    }

    /// Returns true if the kernel has the function `name`.
    pub(super) fn has_function(&self, name: &str) -> bool {
        self.find_type(KIND_FUNC, name).is_some()
    }

    fn find_type(&self, wanted: u32, name: &str) -> Option<&'data [u8]> {
        let is_match = |kind: &&&[u8]| {
            kind_of(kind) == Some(wanted) && word(kind, 0).and_then(|name| self.name(name)) == Some(name)
        };
        self.types.iter().find(is_match).copied()
    }

    /// Returns the type with this id. Resolves typedefs and `const`, which anonymous structs can have too, as in
    /// `struct vm_fault` (include/linux/mm.h).
    fn resolve_names(&self, id: u32) -> Option<&'data [u8]> {
        let mut kind = self.type_by_id(id)?;
        for _ in 0..8 {
            if !matches!(kind_of(kind)?, KIND_TYPEDEF | KIND_CONST) {
                break;
            }
            kind = self.type_by_id(word(kind, 2)?)?;
        }
        Some(kind)
    }

    fn type_by_id(&self, id: u32) -> Option<&'data [u8]> {
        self.types.get((id as usize).checked_sub(1)?).copied()
    }

    /// Returns the offset in bits of `member` in the struct or union `kind`, and the id of the member's type.
    fn find_member(&self, kind: &[u8], member: &str, depth: u32) -> Option<(u32, u32)> {
        let info = word(kind, 1)?;
        for index in 0..info & 0xffff {
            let start = 3 + index as usize * 3;
            let (name, inner, offset) = (word(kind, start)?, word(kind, start + 1)?, word(kind, start + 2)?);
            // If `kind_flag` (bit 31) is set, the upper byte is the width of a bit field.
            let bits = if info >> 31 == 1 { offset & 0x00ff_ffff } else { offset };
            if self.name(name)? == member {
                return Some((bits, inner));
            }
            if self.name(name)?.is_empty() && depth < 8 {
                let inner = self.resolve_names(inner)?;
                if matches!(kind_of(inner), Some(KIND_STRUCT | KIND_UNION))
                    && let Some((inside, kind)) = self.find_member(inner, member, depth + 1)
                {
                    return Some((bits.checked_add(inside)?, kind));
                }
            }
        }
        None
    }

    fn name(&self, offset: u32) -> Option<&'data str> {
        let name = self.names.get(offset as usize..)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&name[..end]).ok()
    }
}

fn kind_of(kind: &[u8]) -> Option<u32> {
    Some((word(kind, 1)? >> 24) & 0x1f)
}

fn type_length(kind: &[u8]) -> Option<usize> {
    let members = (word(kind, 1)? & 0xffff) as usize;
    let extra = match kind_of(kind)? {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => members * 12,
        KIND_ENUM | KIND_FUNC_PROTO => members * 8,
        _ => 0,
    };
    Some(12 + extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of `struct pair { int first; struct { int second; }; }`.
    fn sample() -> Vec<u8> {
        let names = b"\0int\0pair\0first\0second\0";
        let types: [u32; 4 + 3 + 6 + 3 + 3] = [
            1,
            1 << 24,
            4,
            32, // 1: int
            0,
            4 << 24 | 1,
            4,
            16,
            1,
            0, // 2: anonymous struct, second
            5,
            4 << 24 | 2,
            8,
            10,
            1,
            0,
            0,
            2,
            32, // 3: pair, first and the anonymous one
        ];
        let length = u32::try_from(types.len() * 4).unwrap();
        let header: [u32; 6] = [u32::from(MAGIC) | 1 << 16, 24, 0, length, length, u32::try_from(names.len()).unwrap()];
        let mut data: Vec<u8> = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()).collect();
        data.extend(names);
        data
    }

    #[test]
    fn members_of_anonymous_structs_are_found() {
        let data = sample();
        let btf = Btf::parse(&data).unwrap();
        assert_eq!(btf.member_offset("pair", "first"), Some(0));
        assert_eq!(btf.member_offset("pair", "second"), Some(4));
        assert_eq!(btf.member_offset("pair", "third"), None);
        assert_eq!(btf.member_offset("nothing", "first"), None);
    }

    #[test]
    fn damaged_btf_has_no_members() {
        let data = sample();
        for length in 0..data.len() {
            if let Some(btf) = Btf::parse(&data[..length]) {
                assert_eq!(btf.member_offset("nothing", "first"), None);
            }
        }
        assert!(Btf::parse(b"not type information").is_none());
    }

    #[test]
    fn btf_of_the_running_kernel_is_parsed() {
        let data = std::fs::read(crate::procfs::kernel_btf()).unwrap();
        let btf = Btf::parse(&data).unwrap();
        assert!(btf.member_offset("task_struct", "signal").is_some_and(|offset| offset > 0));
        assert!(btf.member_offset("signal_struct", "live").is_some());
        assert!(btf.member_offset("mm_struct", "context.vdso") > btf.member_offset("mm_struct", "context"));
        assert_eq!(btf.member_offset("mm_struct", "context.nothing"), None);
        assert!(btf.member_offset("signal_struct", "stats_lock.seqcount.seqcount.sequence").is_some());
        // The address is in an anonymous struct that is `const`.
        assert!(btf.member_offset("vm_fault", "address") > btf.member_offset("vm_fault", "vma"));
        let isolate = btf.tracepoint_arguments("mm_vmscan_lru_isolate").unwrap();
        assert_eq!((isolate[0], isolate[3], isolate.last()), ("int", "long unsigned int", Some(&"int")));
        assert_eq!(btf.tracepoint_arguments("mm_vmscan_nothing"), None);
        // include/linux/cgroup_subsys.h lists cpuset first, unless the kernel is built without it.
        assert_eq!(btf.enum_value("cgroup_subsys_id", "cpuset_cgrp_id"), Some(0));
        assert!(btf.enum_value("cgroup_subsys_id", "memory_cgrp_id") > Some(0));
        assert_eq!(btf.enum_value("cgroup_subsys_id", "nothing_cgrp_id"), None);
        assert!(btf.has_function("bpf_find_vma") && !btf.has_function("bpf_find_nothing"));
    }
}
