//! A helper that writes IR operation by operation, without the builder's types, so that tests reach
//! every operation and attribute.

use std::io::Write as _;

use pgemm_ir::{
    AccId, Accumulator, Block, Constant, Element, Inst, Kernel, LocId, Location, Op, Param,
    ParamId, ParamKind, Region, RegionId, RegionKind, Role, Space, SwizzleMode, TensorMapSpec,
    Type, ValueId,
};
use pgemm_ir::{Access, Order, Scope};
use pgemm_ptx::ptxas::Ptxas;

/// A kernel under construction.
pub struct Ops {
    kernel: Kernel,
    blocks: Vec<Block>,
}

impl Ops {
    /// An empty kernel of this many warpgroups.
    pub fn new(name: &str, warpgroups: u32) -> Ops {
        let location = |line, scopes: &[&str]| Location {
            file: "kernel.rs".to_owned(),
            line,
            column: 1,
            scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        };
        Ops {
            kernel: Kernel {
                name: name.to_owned(),
                params: vec![],
                cluster: 1,
                ctas_per_sm: 1,
                roles: vec![Role { name: "all".to_owned(), warpgroups, registers: 128 }],
                regions: vec![],
                accumulators: vec![],
                values: vec![],
                body: Block::default(),
                locations: vec![location(1, &[]), location(2, &["consumer", "mainloop"])],
            },
            blocks: vec![Block::default()],
        }
    }

    pub fn cluster(mut self, ctas: u32) -> Ops {
        self.kernel.cluster = ctas;
        self
    }

    pub fn ctas_per_sm(mut self, ctas: u32) -> Ops {
        self.kernel.ctas_per_sm = ctas;
        self
    }

    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().expect("the outermost block");
        assert!(self.blocks.is_empty());
        self.kernel
    }

    fn value(&mut self, ty: Type) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn push(&mut self, op: Op, args: &[ValueId], results: Vec<ValueId>, blocks: Vec<Block>) {
        let loc = LocId(u32::from(self.blocks.len() > 1));
        let inst = Inst { op, args: args.to_vec(), results, blocks, loc };
        self.blocks.last_mut().expect("an open block").insts.push(inst);
    }

    /// Appends an operation with any results.
    pub fn many(&mut self, op: Op, args: &[ValueId], results: &[Type]) -> Vec<ValueId> {
        self.control(op, args, results, vec![])
    }

    /// Appends an operation with one result.
    pub fn one(&mut self, op: Op, args: &[ValueId], ty: Type) -> ValueId {
        self.many(op, args, &[ty])[0]
    }

    /// Appends an operation without results.
    pub fn run(&mut self, op: Op, args: &[ValueId]) {
        self.push(op, args, vec![], vec![]);
    }

    /// Appends an operation with nested blocks.
    pub fn control(
        &mut self,
        op: Op,
        args: &[ValueId],
        results: &[Type],
        blocks: Vec<Block>,
    ) -> Vec<ValueId> {
        let results: Vec<ValueId> = results.iter().map(|&ty| self.value(ty)).collect();
        self.push(op, args, results.clone(), blocks);
        results
    }

    /// A nested block that yields what `body` returns.
    pub fn block(
        &mut self,
        params: &[Type],
        body: impl FnOnce(&mut Ops, &[ValueId]) -> Vec<ValueId>,
    ) -> Block {
        let params: Vec<ValueId> = params.iter().map(|&ty| self.value(ty)).collect();
        self.blocks.push(Block { params: params.clone(), insts: vec![] });
        let yielded = body(self, &params);
        self.run(Op::Yield, &yielded);
        self.blocks.pop().expect("the block pushed above")
    }

    pub fn constant(&mut self, constant: Constant) -> ValueId {
        self.one(Op::Const(constant), &[], constant.ty())
    }

    pub fn u32(&mut self, value: u32) -> ValueId {
        self.constant(Constant::U32(value))
    }

    pub fn param(&mut self, name: &str, ty: Type) -> ValueId {
        let id = self.declare(name, ParamKind::Scalar(ty));
        self.one(Op::Param(id), &[], ty)
    }

    pub fn map(&mut self, name: &str, element: Element, box_extents: &[u32]) -> ValueId {
        let box_extents = box_extents.to_vec();
        let spec = TensorMapSpec::tiled(element, box_extents, SwizzleMode::B128);
        let id = self.declare(name, ParamKind::TensorMap(spec));
        self.one(Op::MapParam(id), &[], Type::MapPtr)
    }

    pub fn declare(&mut self, name: &str, kind: ParamKind) -> ParamId {
        self.kernel.params.push(Param { name: name.to_owned(), kind });
        ParamId(self.kernel.params.len() as u32 - 1)
    }

    /// The address of a new region.
    pub fn region(&mut self, offset: u32, bytes: u32) -> ValueId {
        let kind = RegionKind::Data(Element::Bf16);
        let name = "region".to_owned();
        self.kernel.regions.push(Region { name, kind, offset, bytes, align: 16 });
        let id = RegionId(self.kernel.regions.len() as u32 - 1);
        self.one(Op::SmemAddress(id), &[], Type::Smem)
    }

    pub fn accumulator(&mut self, ty: Type, registers: u32) -> AccId {
        self.kernel.accumulators.push(Accumulator { ty, registers });
        AccId(self.kernel.accumulators.len() as u32 - 1)
    }
}

/// A weak access of `vector` elements.
pub fn weak(space: Space, ty: Type, vector: u32) -> Access {
    Access { space, ty, vector, order: Order::Weak, scope: Scope::Cta, once: false }
}

/// The installed assemblers. Without any the test is skipped, which it says past the harness's
/// capture.
pub fn assemblers(test: &str) -> Vec<Ptxas> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools");
    let assemblers = Ptxas::installed_in(tools.as_ref());
    if assemblers.is_empty() {
        let required = std::env::var("PGEMM_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "PGEMM_REQUIRE_PTXAS=1, but there is no ptxas: run scripts/ptxas.sh");
        let line = format!("SKIPPED: {test}: no ptxas, run scripts/ptxas.sh\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    assemblers
}
