//! [`Signature`]: what a kernel is launched with. It follows from the [`Spec`] alone: the kernel's
//! parts are declared, and no code is written. It can be stored beside an assembled kernel, which
//! is then launched without generating anything.

use pgemm_ir::{KernelBuilder, Launch, TensorMapSpec, WARPGROUP_THREADS};
use serde::{Deserialize, Serialize};

use super::{Values, Work};
use crate::quantity::Quantity;
use crate::queue::QueueQuantity;
use crate::spec::Spec;

/// What a parameter of a kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// Something about the problem of a launch.
    Problem(Quantity),
    /// Something about the queue of a resident kernel.
    Queue(QueueQuantity),
}

/// What a kernel is launched with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// The kernel.
    pub spec: Spec,
    /// Its entry name in PTX.
    pub name: String,
    /// What its parameters say, in order.
    pub parameters: Vec<Parameter>,
    /// The boxes of its parameters that are tensor maps, in order.
    pub tensor_maps: Vec<TensorMapSpec>,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// Threads of a CTA.
    pub threads: u32,
    /// Dynamic shared memory of a CTA, in bytes.
    pub smem_bytes: u32,
}

impl Signature {
    pub(crate) fn new(spec: &Spec, builder: &KernelBuilder, parameters: Vec<Parameter>) -> Self {
        Signature {
            spec: *spec,
            name: spec.entry_name(),
            parameters,
            tensor_maps: builder.tensor_maps(),
            cluster: spec.cluster.size(),
            threads: (spec.consumers() + 1) * WARPGROUP_THREADS,
            smem_bytes: builder.smem_bytes(),
        }
    }

    /// The place of a quantity among the parameters, so that its argument can be changed between
    /// launches.
    pub fn position(&self, quantity: Quantity) -> Option<usize> {
        let parameter = Parameter::Problem(quantity);
        self.parameters.iter().position(|found| *found == parameter)
    }

    /// The place of a quantity of a queue among the parameters.
    pub fn queue_position(&self, quantity: QueueQuantity) -> Option<usize> {
        let parameter = Parameter::Queue(quantity);
        self.parameters.iter().position(|found| *found == parameter)
    }

    /// The launch of the kernel on `work`. A kernel with a queue is launched by
    /// [`bind_queue`](Self::bind_queue).
    pub fn bind(&self, work: &Work) -> Launch {
        let values = Values::new(&self.spec, work);
        let arguments = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Problem(quantity) => Some(values.value(*quantity)),
            Parameter::Queue(_) => None,
        });
        Launch { grid: [work.clusters * self.cluster, 1, 1], arguments: arguments.collect() }
    }
}
