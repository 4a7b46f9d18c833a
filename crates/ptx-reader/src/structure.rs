//! The control flow of a body as a tree. Labels and branches must be those of structured code:
//! loops with the test at the end or in the middle, branches with one or two sides.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::error::{Mismatch, Outcome};
use crate::isa;
use crate::syntax::{Instruction, Module, Operand, Register, Statement};

/// A piece of the body.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An instruction that only computes, perhaps under a predicate.
    Computes(Instruction),
    /// An instruction that has a place in the order of the program.
    Step(Instruction),
    Branch(Branch),
    Loop(Loop),
}

/// Two ways, one of which may be empty.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) line: usize,
    pub(crate) predicate: Register,
    /// What runs where the predicate holds.
    pub(crate) holds: Vec<Node>,
    /// What runs where it does not.
    pub(crate) fails: Vec<Node>,
}

/// A loop.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) line: usize,
    /// Whether the assembler is told not to unroll it.
    pub(crate) nounroll: bool,
    /// The line of the branch that leaves or repeats the loop, its predicate, and the value with
    /// which the loop goes on.
    pub(crate) test: (usize, Register, bool),
    /// What runs before the test.
    pub(crate) before: Vec<Node>,
    /// What runs after the test, if the test is not at the end.
    pub(crate) after: Option<Vec<Node>>,
    /// The registers that are written in it.
    pub(crate) written: BTreeSet<Register>,
}

impl Node {
    /// Whether nothing in it has a place in the order of the program.
    pub(crate) fn computes(&self) -> bool {
        match self {
            Node::Computes(_) => true,
            Node::Step(_) | Node::Loop(_) => false,
            Node::Branch(branch) => branch.holds.iter().chain(&branch.fails).all(Node::computes),
        }
    }

    /// The line that it begins in.
    pub(crate) fn line(&self) -> usize {
        match self {
            Node::Computes(instruction) | Node::Step(instruction) => instruction.line,
            Node::Branch(branch) => branch.line,
            Node::Loop(repeated) => repeated.line,
        }
    }

    fn writes(&self, written: &mut BTreeSet<Register>) {
        match self {
            Node::Computes(instruction) | Node::Step(instruction) => {
                written.extend(results(instruction));
            }
            Node::Branch(branch) => {
                branch.holds.iter().chain(&branch.fails).for_each(|node| node.writes(written));
            }
            Node::Loop(repeated) => written.extend(&repeated.written),
        }
    }
}

/// The registers that an instruction writes: its first operand, if it has a result at all.
pub(crate) fn results(instruction: &Instruction) -> Vec<Register> {
    let opcode = instruction.opcode.split('.').next().unwrap_or_default();
    let first = match opcode {
        "st" | "red" | "bar" | "prefetch" | "cp" | "fence" | "stmatrix" | "nanosleep" => None,
        _ => instruction.operands.first(),
    };
    match first {
        Some(Operand::Register(register) | Operand::SinkAndPredicate(register)) => vec![*register],
        Some(Operand::Pair(first, second)) => vec![*first, *second],
        Some(Operand::List(list)) => {
            let registers = list.iter().filter_map(|operand| match operand {
                Operand::Register(register) => Some(*register),
                _ => None,
            });
            registers.collect()
        }
        _ => vec![],
    }
}

/// Whether a special register changes while a thread runs.
pub(crate) fn is_clock(name: &str) -> bool {
    name.contains("clock") || name.contains("timer")
}

/// Whether an instruction only computes. A clock and other lanes' values change, so that reading
/// them has a place. So has every instruction with other operands than those that computations
/// have.
fn computes(instruction: &Instruction) -> bool {
    let Instruction { opcode, operands, .. } = instruction;
    let has_place = |operand: &Operand| match operand {
        Operand::Special(name) => is_clock(name),
        operand => matches!(operand, Operand::Pair(..)),
    };
    let signature = isa::signature(opcode);
    let is_computation = signature.is_some_and(|(_, sources)| operands.len() == sources.len() + 1);
    !operands.iter().any(has_place) && (opcode.starts_with("ld.param.") || is_computation)
}

/// The tree of a body, which must end with `ret`.
pub(crate) fn tree(module: &Module) -> Outcome<Vec<Node>> {
    let body = &module.body;
    let end = match body.split_last() {
        Some((Statement::Instruction(last), rest))
            if last.opcode == "ret" && last.operands.is_empty() && last.guard.is_none() =>
        {
            rest.len()
        }
        _ => {
            let line = body.last().map_or(module.entry.0, line);
            return Err(Mismatch::at(line, "another end of the body", "`ret`"));
        }
    };
    let mut labels = HashMap::new();
    for (position, statement) in body.iter().enumerate() {
        let Statement::Label(line, name) = statement else { continue };
        if labels.insert(name.as_str(), position).is_some() {
            return Err(Mismatch::at(*line, format!("a second `{name}`"), "one such label"));
        }
    }
    let mut structure = Structure { body, labels, repeats: HashMap::new() };
    for position in 0..end {
        if let Some((_, target)) = structure.branch(position)?
            && target <= position
        {
            // The last one ends the loop; others in it are refused.
            structure.repeats.insert(target, position);
        }
    }
    structure.nodes(0..end)
}

fn line(statement: &Statement) -> usize {
    match statement {
        Statement::Label(line, _) | Statement::Pragma(line, _) => *line,
        Statement::Instruction(instruction) => instruction.line,
    }
}

struct Structure<'m> {
    body: &'m [Statement],
    labels: HashMap<&'m str, usize>,
    /// By the position of a label, that of the last branch back to it.
    repeats: HashMap<usize, usize>,
}

/// A predicate and the value of it that is meant.
type Condition = (Register, bool);

impl Structure<'_> {
    /// The condition and the target of a branch.
    fn branch(&self, position: usize) -> Outcome<Option<(Option<Condition>, usize)>> {
        let Statement::Instruction(instruction) = &self.body[position] else { return Ok(None) };
        if instruction.opcode != "bra" {
            return Ok(None);
        }
        let target = match &instruction.operands[..] {
            [Operand::Symbol(label)] => self.labels.get(label.as_str()),
            _ => None,
        };
        match target {
            Some(target) => Ok(Some((instruction.guard, *target))),
            None => Err(Mismatch::at(instruction.line, "another operand", "a label of the body")),
        }
    }

    fn nodes(&self, range: Range<usize>) -> Outcome<Vec<Node>> {
        let mut nodes = vec![];
        let mut position = range.start;
        while position < range.end {
            if let Some((condition, target)) = self.branch(position)? {
                let (node, next) = self.forward(position, condition, target, range.end)?;
                nodes.push(node);
                position = next;
                continue;
            }
            match &self.body[position] {
                Statement::Label(line, name) => {
                    let Some(&back) = self.repeats.get(&position) else {
                        position += 1;
                        continue;
                    };
                    if back >= range.end {
                        let expected = "a loop that ends in the block that it begins in";
                        return Err(Mismatch::at(*line, format!("`{name}`"), expected));
                    }
                    nodes.push(Node::Loop(self.repeated(position, back)?));
                    position = back + 1;
                }
                Statement::Pragma(line, text) => {
                    let expected = "a pragma only at the beginning of a loop";
                    return Err(Mismatch::at(*line, format!("pragma \"{text}\""), expected));
                }
                Statement::Instruction(instruction) => {
                    nodes.push(plain(instruction));
                    position += 1;
                }
            }
        }
        Ok(nodes)
    }

    /// A branch over code, and the position behind all of it.
    fn forward(
        &self,
        position: usize,
        condition: Option<Condition>,
        target: usize,
        end: usize,
    ) -> Outcome<(Node, usize)> {
        let line = line(&self.body[position]);
        let refuse = |found: &str| Mismatch::at(line, found, "a branch of structured code");
        let (predicate, taken_where) =
            condition.ok_or_else(|| refuse("an unconditional branch that ends no side"))?;
        if target <= position || target > end {
            return Err(refuse("a target outside of the block"));
        }
        // A branch forward directly before the target ends the first of two sides.
        let (over, taken, next) = match self.branch(target - 1)? {
            Some((None, join)) if target - 1 > position && join > target => {
                if join > end {
                    return Err(refuse("sides that end outside of the block"));
                }
                (position + 1..target - 1, target..join, join)
            }
            _ => (position + 1..target, target..target, target),
        };
        let (over, taken) = (self.nodes(over)?, self.nodes(taken)?);
        let (holds, fails) = if taken_where { (taken, over) } else { (over, taken) };
        Ok((Node::Branch(Branch { line, predicate, holds, fails }), next))
    }

    /// The loop from a label to the branch back to it.
    fn repeated(&self, label: usize, back: usize) -> Outcome<Loop> {
        let line = line(&self.body[label]);
        let mut first = label + 1;
        let mut nounroll = false;
        if let Statement::Pragma(line, text) = &self.body[first] {
            if text != "nounroll" {
                return Err(Mismatch::at(*line, format!("pragma \"{text}\""), "\"nounroll\""));
            }
            nounroll = true;
            first += 1;
        }
        let (test, before, after) = match self.branch(back)? {
            Some((Some((predicate, holds)), _)) => {
                let test = (self.line_at(back), predicate, holds);
                (test, self.nodes(first..back)?, None)
            }
            _ => {
                let leaves = |&position: &usize| match self.branch(position) {
                    Ok(Some((condition, target))) => condition.is_some() && target == back + 1,
                    _ => false,
                };
                let exit = (first..back).find(leaves).and_then(|exit| {
                    let Ok(Some((Some((predicate, holds)), _))) = self.branch(exit) else {
                        return None;
                    };
                    Some((exit, (self.line_at(exit), predicate, !holds)))
                });
                let Some((exit, test)) = exit else {
                    return Err(Mismatch::at(line, "a loop without an exit", "a test"));
                };
                (test, self.nodes(first..exit)?, Some(self.nodes(exit + 1..back)?))
            }
        };
        let mut written = BTreeSet::new();
        for node in before.iter().chain(after.iter().flatten()) {
            node.writes(&mut written);
        }
        Ok(Loop { line, nounroll, test, before, after, written })
    }

    fn line_at(&self, position: usize) -> usize {
        line(&self.body[position])
    }
}

/// The node of an instruction. One that has a place and a predicate is a branch around it.
fn plain(instruction: &Instruction) -> Node {
    if computes(instruction) {
        return Node::Computes(instruction.clone());
    }
    let step = Node::Step(Instruction { guard: None, ..instruction.clone() });
    let Some((predicate, where_holds)) = instruction.guard else { return step };
    let (holds, fails) = if where_holds { (vec![step], vec![]) } else { (vec![], vec![step]) };
    Node::Branch(Branch { line: instruction.line, predicate, holds, fails })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn nodes(body: &str) -> Outcome<Vec<Node>> {
        let declarations = "{\n.reg .pred %p<2>;\n.reg .b32 %r<2>;\n";
        let text = format!(".visible .entry e()\n{declarations}{body}\nret;\n}}\n");
        tree(&parse::module(&text).unwrap())
    }

    #[test]
    fn a_branch_has_one_side_or_two() {
        let one = nodes("@%p0 bra $l;\nbar.sync 0;\n$l:").unwrap();
        let [Node::Branch(Branch { holds, fails, .. })] = &one[..] else { panic!("{one:?}") };
        assert!(holds.is_empty() && fails.len() == 1);
        let two = nodes("@!%p0 bra $l;\nbar.sync 0;\nbra $m;\n$l:\nbar.sync 1;\n$m:").unwrap();
        let [Node::Branch(Branch { holds, fails, .. })] = &two[..] else { panic!("{two:?}") };
        assert_eq!((holds.len(), fails.len()), (1, 1));
    }

    #[test]
    fn a_guarded_step_is_a_branch_and_a_guarded_computation_is_none() {
        let guarded = nodes("@!%p0 bar.sync 0;\n@%p0 mov.b32 %r0, 1;").unwrap();
        let [Node::Branch(branch), Node::Computes(_)] = &guarded[..] else { panic!("{guarded:?}") };
        assert!(branch.holds.is_empty() && branch.fails.len() == 1 && !guarded[0].computes());
    }

    #[test]
    fn a_loop_is_left_at_its_end_or_in_between() {
        let end =
            nodes("$l:\nadd.u32 %r0, %r0, 1;\nsetp.lt.u32 %p0, %r0, 4;\n@%p0 bra $l;").unwrap();
        let [Node::Loop(own)] = &end[..] else { panic!("{end:?}") };
        assert!(own.after.is_none() && own.test.2 && own.written.len() == 2);
        let between = nodes("$l:\n@!%p0 bra $m;\nbar.sync 0;\nbra $l;\n$m:").unwrap();
        let [Node::Loop(own)] = &between[..] else { panic!("{between:?}") };
        assert!(own.before.is_empty() && own.after.as_ref().is_some_and(|after| after.len() == 1));
        assert!(own.test.2, "the branch leaves where the predicate does not hold");
    }

    #[test]
    fn other_branches_are_refused() {
        for body in [
            "bra $l;\n$l:",
            "@%p0 bra $l;",
            "$l:\nbra $l;",
            "@%p0 bra $l;\n$m:\n$l:\n@%p1 bra $m;",
            "$l:\n$l:",
            ".pragma \"nounroll\";",
            "$l:\n.pragma \"unroll\";\n@%p0 bra $l;",
        ] {
            assert!(nodes(body).is_err(), "{body}");
        }
    }
}
