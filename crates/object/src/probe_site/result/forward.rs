//! Forward data flow: values before each instruction that are the same on all paths to it.

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::graph::{Graph, Next, Node};
use super::place::{FIRST_ARGUMENT, GeneralRegister, Place, RESULT, containing, whole};
use super::refusal::Refusal;
use super::steps::Steps;

/// Size of a word in bytes.
const WORD: i64 = 8;

/// Number of bytes below the stack pointer that signal handlers do not use (System V ABI, AMD64 supplement, 3.2.2).
const RED_ZONE: i64 = 128;

/// Maximum number of known values before an instruction. The functions of glibc have some tens.
const MAX_VALUES: usize = 256;

/// Number of bytes below the stack pointer that a called function may write. Real frames are smaller.
const BELOW: i64 = 1 << 32;

/// Argument registers in order (System V ABI, AMD64 supplement, 3.2.3).
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Other registers that a called function may read: rax has the number of vector registers, r10 the static chain.
const OTHER_INPUTS: [Register; 2] = [Register::RAX, Register::R10];

/// A known value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// An argument of the function, by its number from 0.
    Argument(u8),
    /// The lower half of the product of two arguments.
    Product(u8, u8),
    Number(u64),
    /// The word that a preserved register had at the entry.
    Saved(GeneralRegister),
    /// An address on the stack, by its distance in bytes from the stack pointer at the entry.
    Stack(i64),
}

/// A null pointer.
pub(super) const NULL: Value = Value::Number(0);

/// State before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Distance in bytes of the stack pointer from its value at the entry. It is not positive.
    pub(super) stack: i64,
    values: BTreeMap<Place, Value>,
    /// Register that the last comparison compared with null, if the flags still have the result.
    pub(super) compared: Option<Place>,
    /// True if other code may know addresses of the frame.
    has_escaped: bool,
}

/// Effects of an instruction on places.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Source and destination of a word that the instruction copies.
    pub(super) copy: Option<(Place, Place)>,
    /// Registers that may be written.
    registers: Vec<Place>,
    /// Ranges of the stack that may be written: first byte, as in [`Place::Slot`], and length.
    slots: Vec<(i64, i64)>,
    /// True if any slot may be written.
    all_slots: bool,
}

impl Effects {
    /// Returns true if the place may be written.
    pub(super) fn writes(&self, place: Place) -> bool {
        match place {
            Place::Register(_) => self.registers.contains(&place),
            Place::Slot(at) => {
                let overlaps = |(first, length): &(i64, i64)| at < first + length && *first < at + WORD;
                self.all_slots || self.slots.iter().any(overlaps)
            }
        }
    }
}

impl State {
    fn at_entry() -> Self {
        let values =
            (0..).zip(ARGUMENTS).filter_map(|(number, register)| Some((whole(register)?, Value::Argument(number))));
        let saved = GeneralRegister::PRESERVED.map(|register| (Place::Register(register), Value::Saved(register)));
        Self { stack: 0, values: values.chain(saved).collect(), compared: None, has_escaped: false }
    }

    /// Returns the value of a place, if it is known.
    pub(super) fn value(&self, place: Place) -> Option<Value> {
        self.values.get(&place).copied()
    }

    /// Returns the place that the instruction sets to null, if any.
    pub(super) fn writes_null(&self, node: &Node) -> Option<Place> {
        let is_null = !node.next.is_call() && self.result(&node.instruction) == Some(NULL);
        if is_null { self.target(&node.instruction) } else { None }
    }

    /// Returns the first argument of a call, if it is a number.
    pub(super) fn first_argument(&self) -> Option<u64> {
        match self.value(whole(Register::RDI)?)? {
            Value::Number(number) => Some(number),
            Value::Argument(_) | Value::Product(..) | Value::Saved(_) | Value::Stack(_) => None,
        }
    }

    /// Returns the places with this value.
    pub(super) fn places_of(&self, value: Value) -> impl Iterator<Item = Place> {
        self.values.iter().filter(move |(_, other)| **other == value).map(|(place, _)| *place)
    }

    /// Keeps the facts that are true in both states. Returns true if the state has changed.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        // An address that only one of the paths has is no longer known after the join, but code could use it.
        self.has_escaped |= other.has_escaped || self.has_other_address(other) || other.has_other_address(self);
        self.values.retain(|place, value| other.value(*place) == Some(*value));
        self.compared = self.compared.filter(|place| other.compared == Some(*place));
        *self != before
    }

    /// Returns true if a place has an address on the stack in this state, but another value in `other`.
    fn has_other_address(&self, other: &Self) -> bool {
        let mut addresses = self.values.iter().filter(|(_, value)| matches!(value, Value::Stack(_)));
        addresses.any(|(place, value)| other.value(*place) != Some(*value))
    }

    /// Returns the address of the memory operand if it is on the stack, as its distance from the stack pointer at the
    /// entry.
    fn stack_address(&self, instruction: &Instruction) -> Option<i64> {
        let is_plain = instruction.memory_index() == Register::None
            && matches!(instruction.memory_segment(), Register::SS | Register::DS);
        let base = match instruction.memory_base() {
            Register::RSP => self.stack,
            base => match self.value(whole(base)?)? {
                Value::Stack(at) => at,
                _ => return None,
            },
        };
        is_plain.then(|| base.wrapping_add(instruction.memory_displacement64().cast_signed()))
    }

    /// Returns true if the memory operand is a word.
    fn is_word(instruction: &Instruction) -> bool {
        instruction.memory_size().size() == WORD as usize
    }

    /// Returns the place of an operand that is a word.
    fn place(&self, instruction: &Instruction, operand: u32) -> Option<Place> {
        match instruction.op_kind(operand) {
            OpKind::Register => whole(instruction.op_register(operand)),
            OpKind::Memory if Self::is_word(instruction) => self.stack_address(instruction).map(Place::Slot),
            _ => None,
        }
    }

    /// Returns the effects of an instruction other than a call.
    fn effects(&self, instruction: &Instruction) -> Effects {
        let mut effects = Effects::default();
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let is_written = |access: OpAccess| {
            !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
        };
        let registers = info.used_registers().iter().filter(|used| is_written(used.access()));
        effects.registers = registers.filter_map(|used| containing(used.register())).collect();
        match instruction.mnemonic() {
            // The kernel returns its result in rax, and may write to memory that an argument points to.
            Mnemonic::Syscall => {
                effects.registers.extend(whole(Register::RAX));
                effects.all_slots = self.escapes_at_call();
            }
            Mnemonic::Push => {
                let top = self.stack - WORD;
                effects.slots.push((top, WORD));
                effects.copy = self.place(instruction, 0).map(|from| (from, Place::Slot(top)));
            }
            Mnemonic::Pop => effects.copy = self.place(instruction, 0).map(|to| (Place::Slot(self.stack), to)),
            _ => {
                if info.used_memory().iter().any(|used| is_written(used.access())) {
                    let size = i64::try_from(instruction.memory_size().size()).unwrap_or_default();
                    match self.stack_address(instruction) {
                        Some(at) if size > 0 => effects.slots.push((at, size)),
                        // An index could lead to any slot, and a string instruction can write any number of slots.
                        _ => effects.all_slots = self.has_escaped || self.uses_stack(info),
                    }
                }
                if instruction.mnemonic() == Mnemonic::Mov {
                    effects.copy = self.place(instruction, 1).zip(self.place(instruction, 0));
                }
            }
        }
        effects
    }

    /// Returns the effects of the instruction of `node`, which may be a call.
    pub(super) fn effects_of(&self, node: &Node) -> Effects {
        match node.next {
            Next::Call(_) => self.effects_of_call(),
            Next::CallReturnsFirst(_) => Effects { copy: Some((FIRST_ARGUMENT, RESULT)), ..self.effects_of_call() },
            _ => self.effects(&node.instruction),
        }
    }

    /// Returns the effects of a call.
    fn effects_of_call(&self) -> Effects {
        let all = (0..16).map(GeneralRegister).filter(|register| !register.is_preserved());
        Effects {
            registers: all.map(Place::Register).collect(),
            // The called functions may write to their own frames, below the stack pointer.
            slots: vec![(self.stack - BELOW, BELOW)],
            all_slots: self.escapes_at_call(),
            ..Effects::default()
        }
    }

    fn escapes_at_call(&self) -> bool {
        let is_address = |register: &Register| {
            whole(*register).and_then(|place| self.value(place)).is_some_and(|value| matches!(value, Value::Stack(_)))
        };
        // A slot that contains a stack address can be an argument that is passed on the stack.
        self.has_escaped || ARGUMENTS.iter().chain(&OTHER_INPUTS).any(is_address) || self.has_address_in_slot()
    }

    fn has_address_in_slot(&self) -> bool {
        self.values.iter().any(|entry| matches!(entry, (Place::Slot(_), Value::Stack(_))))
    }

    /// Returns true if the base or index register of a memory access has an address on the stack.
    fn uses_stack(&self, info: &InstructionInfo) -> bool {
        info.used_memory().iter().any(|used| self.is_stack(used.base()) || self.is_stack(used.index()))
    }

    fn is_stack(&self, register: Register) -> bool {
        register == Register::RSP
            || containing(register)
                .and_then(|place| self.value(place))
                .is_some_and(|value| matches!(value, Value::Stack(_)))
    }

    /// Returns the value that the instruction computes, if it is known.
    fn result(&self, instruction: &Instruction) -> Option<Value> {
        let operand = |number: u32| match instruction.op_kind(number) {
            OpKind::Register if instruction.op_register(number) == Register::RSP => Some(Value::Stack(self.stack)),
            OpKind::Register | OpKind::Memory => self.value(self.place(instruction, number)?),
            _ => None,
        };
        let is_same = instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        match instruction.mnemonic() {
            Mnemonic::Mov if is_immediate(instruction, 1) => {
                let is_word = instruction.op0_kind() != OpKind::Register || instruction.op0_register().is_gpr64();
                let number = instruction.immediate(1);
                Some(Value::Number(if is_word { number } else { u64::from(number as u32) }))
            }
            Mnemonic::Mov => operand(1),
            Mnemonic::Xor if is_same => Some(Value::Number(0)),
            Mnemonic::Lea => self.stack_address(instruction).map(Value::Stack),
            Mnemonic::Imul if instruction.op_count() == 2 => product(operand(0)?, operand(1)?),
            _ => None,
        }
    }

    /// Applies the effects of an instruction other than a call to the state.
    fn step(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        let effects = self.effects(instruction);
        let result = self.result(instruction);
        let product = self.product_of_mul(instruction);
        // The analysis forgets the contents of the slots, but the analysed code may still load a stack address from one of
        // them, so the address counts as escaped.
        let escapes = self.gives_away(instruction, result) || effects.all_slots && self.has_address_in_slot();
        let before_pop = self.value(Place::Slot(self.stack));
        let pushed = self.place(instruction, 0).and_then(|place| self.value(place));
        let stack = self.stack_after(instruction)?;
        self.values.retain(|place, _| !effects.writes(*place));
        // A signal handler may overwrite slots below the red zone.
        self.values.retain(|place, _| !matches!(place, Place::Slot(at) if *at < stack - RED_ZONE));
        self.has_escaped |= escapes;
        self.stack = stack;
        let (target, value) = match instruction.mnemonic() {
            Mnemonic::Push => (Some(Place::Slot(stack)), pushed),
            Mnemonic::Pop => (self.place_of_register(instruction), before_pop),
            Mnemonic::Mul => (whole(Register::RAX), product),
            _ => (self.target(instruction), result),
        };
        if let (Some(target), Some(value)) = (target, value) {
            self.values.insert(target, value);
        }
        self.compared = match compared(instruction) {
            Some(register) => whole(register),
            None if instruction.rflags_modified() != 0 => None,
            None => self.compared.filter(|place| !effects.writes(*place)),
        };
        Ok(())
    }

    /// Returns the place of the first operand. It is a whole register even for 32 bits, because such a write clears
    /// the upper half.
    fn target(&self, instruction: &Instruction) -> Option<Place> {
        match instruction.op0_kind() {
            OpKind::Register => {
                let register = instruction.op0_register();
                if register.is_gpr64() || register.is_gpr32() { containing(register) } else { None }
            }
            OpKind::Memory => self.place(instruction, 0),
            _ => None,
        }
    }

    fn place_of_register(&self, instruction: &Instruction) -> Option<Place> {
        (instruction.op0_kind() == OpKind::Register).then(|| whole(instruction.op0_register())).flatten()
    }

    /// Returns the product if the instruction is `mul` and multiplies two arguments. The lower half is in rax
    /// afterwards.
    fn product_of_mul(&self, instruction: &Instruction) -> Option<Value> {
        if instruction.mnemonic() != Mnemonic::Mul || instruction.op0_kind() != OpKind::Register {
            return None;
        }
        product(self.value(whole(Register::RAX)?)?, self.value(whole(instruction.op0_register())?)?)
    }

    /// Returns the distance of the stack pointer from its value at the entry, after the instruction.
    fn stack_after(&self, instruction: &Instruction) -> Result<i64, Refusal> {
        let at = instruction.ip();
        let is_stack = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
        let after = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop if !is_stack => {
                Some(self.stack + i64::from(instruction.stack_pointer_increment()))
            }
            Mnemonic::Sub if is_stack && is_immediate(instruction, 1) => {
                Some(self.stack.wrapping_sub(instruction.immediate(1).cast_signed()))
            }
            Mnemonic::Add if is_stack && is_immediate(instruction, 1) => {
                Some(self.stack.wrapping_add(instruction.immediate(1).cast_signed()))
            }
            Mnemonic::Lea if is_stack => self.stack_address(instruction),
            Mnemonic::Mov if is_stack => match self.result(instruction) {
                Some(Value::Stack(at)) => Some(at),
                _ => None,
            },
            Mnemonic::Leave => match self.value(whole(Register::RBP).ok_or(Refusal::Stack(at))?) {
                Some(Value::Stack(at)) => Some(at + WORD),
                _ => None,
            },
            _ if instruction.mnemonic() == Mnemonic::Ret => Some(self.stack),
            _ => (!changes_stack(instruction)).then_some(self.stack),
        };
        after.filter(|after| *after <= 0).ok_or(Refusal::Stack(at))
    }

    /// Returns true if the instruction copies an address on the stack to a place that the analysis does not follow.
    fn gives_away(&self, instruction: &Instruction, result: Option<Value>) -> bool {
        let is_address = |value: Option<Value>| matches!(value, Some(Value::Stack(_)));
        let operands = (0..instruction.op_count()).filter(|number| instruction.op_kind(*number) == OpKind::Register);
        let mut registers = operands.map(|number| instruction.op_register(number));
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        // String instructions change the addresses in their registers.
        let is_changed = |access| matches!(access, OpAccess::ReadWrite | OpAccess::ReadCondWrite | OpAccess::CondWrite);
        let mut changed = info.used_registers().iter().filter(|used| is_changed(used.access()));
        match instruction.mnemonic() {
            // A push of another register saves it in a slot, which is followed.
            Mnemonic::Push => instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP,
            Mnemonic::Pop | Mnemonic::Leave | Mnemonic::Ret | Mnemonic::Nop | Mnemonic::Cmp | Mnemonic::Test => false,
            Mnemonic::Mov => {
                is_address(result) && instruction.op0_kind() == OpKind::Memory && self.target(instruction).is_none()
            }
            Mnemonic::Lea => {
                result.is_none()
                    && [instruction.memory_base(), instruction.memory_index()]
                        .into_iter()
                        .any(|register| self.is_stack(register))
            }
            _ if changes_stack(instruction) => false,
            _ => {
                registers.any(|register| register != Register::RSP && self.is_stack(register))
                    || changed.any(|used| self.is_stack(used.register()))
            }
        }
    }

    /// Applies the effects of a call to the state.
    fn call(&mut self) {
        let effects = self.effects_of_call();
        self.has_escaped = self.escapes_at_call();
        self.values.retain(|place, _| !effects.writes(*place));
        self.compared = None;
    }
}

/// Returns the product of two values if both are arguments.
fn product(one: Value, other: Value) -> Option<Value> {
    match (one, other) {
        (Value::Argument(one), Value::Argument(other)) => Some(Value::Product(one.min(other), one.max(other))),
        _ => None,
    }
}

fn is_immediate(instruction: &Instruction, operand: u32) -> bool {
    matches!(
        instruction.op_kind(operand),
        OpKind::Immediate8
            | OpKind::Immediate8to64
            | OpKind::Immediate8to32
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    )
}

fn changes_stack(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let is_written = |access: OpAccess| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| used.register().full_register() == Register::RSP && is_written(used.access()))
}

/// Returns the register that the instruction compares with null, if any.
fn compared(instruction: &Instruction) -> Option<Register> {
    let register = instruction.op0_register();
    let is_test = instruction.mnemonic() == Mnemonic::Test && instruction.op1_register() == register;
    let is_comparison =
        instruction.mnemonic() == Mnemonic::Cmp && is_immediate(instruction, 1) && instruction.immediate(1) == 0;
    let is_register = instruction.op0_kind() == OpKind::Register && register.is_gpr64();
    (is_register && (is_test || is_comparison)).then_some(register)
}

/// Returns the successor that a branch takes if the compared register is null; `None` for another instruction or condition.
pub(super) fn if_null(node: &Node) -> Option<u64> {
    let Next::Branch { taken, other } = node.next else { return None };
    match node.instruction.condition_code() {
        iced_x86::ConditionCode::e => Some(taken),
        iced_x86::ConditionCode::ne => Some(other),
        _ => None,
    }
}

/// Returns the state before each instruction.
pub(super) fn states(graph: &Graph, steps: &mut Steps) -> Result<BTreeMap<u64, State>, Refusal> {
    let mut states = BTreeMap::from([(graph.entry, State::at_entry())]);
    let mut waiting = vec![graph.entry];
    while let Some(at) = waiting.pop() {
        steps.count()?;
        let (Some(node), Some(before)) = (graph.nodes.get(&at), states.get(&at).cloned()) else { continue };
        let mut after = before.clone();
        match node.next {
            Next::Call(_) | Next::CallReturnsFirst(_) => after.call(),
            Next::End | Next::Return | Next::TailCall(_) | Next::Hooked | Next::ReturnsFirst => {}
            Next::To(_) | Next::Branch { .. } => after.step(&node.instruction)?,
        }
        if after.values.len() > MAX_VALUES {
            return Err(Refusal::TooLong);
        }
        for next in node.next.addresses() {
            let mut after = after.clone();
            if let Some(register) = before.compared.filter(|_| if_null(node) == Some(next)) {
                after.values.insert(register, NULL);
            }
            let is_new = match states.get_mut(&next) {
                Some(known) if known.stack != after.stack => return Err(Refusal::Stack(next)),
                Some(known) => known.join(&after),
                None => {
                    states.insert(next, after);
                    true
                }
            };
            if is_new {
                waiting.push(next);
            }
        }
    }
    let at_return = |(at, node): (&u64, &Node)| {
        let is_balanced = states.get(at).is_some_and(|state| state.stack == 0);
        (node.next == Next::Return && !is_balanced).then_some(*at)
    };
    match graph.nodes.iter().find_map(at_return) {
        Some(at) => Err(Refusal::Stack(at)),
        None => Ok(states),
    }
}
