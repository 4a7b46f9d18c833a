//! [`Signature`] describes what a kernel is launched with. It follows from the [`Spec`] alone: the
//! kernel's parts are declared, and no code is written. It can be stored with an assembled kernel,
//! which is then launched without generating any code.

use pgemm_ir::{CtaShape, KernelBuilder, Launch, TensorMapSpec, WARPGROUP_THREADS};
use serde::{Deserialize, Serialize};

use super::{Values, Work};
use crate::quantity::Quantity;
use crate::queue::QueueQuantity;
use crate::spec::Spec;

/// The content of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// A quantity of the launch's problem.
    Problem(Quantity),
    /// A quantity of the queue of a resident kernel.
    Queue(QueueQuantity),
}

/// The interface by which a kernel is launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// The spec of the kernel.
    pub spec: Spec,
    /// Its entry name in PTX.
    pub name: String,
    /// The contents of its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// The boxes of the parameters that are tensor maps, in order.
    pub tensor_maps: Vec<TensorMapSpec>,
    /// Its CTAs.
    pub shape: CtaShape,
}

impl Signature {
    pub(crate) fn new(spec: &Spec, builder: &KernelBuilder, parameters: Vec<Parameter>) -> Self {
        Signature {
            spec: *spec,
            name: spec.entry_name(),
            parameters,
            tensor_maps: builder.tensor_maps(),
            shape: CtaShape {
                cluster: spec.cluster.size(),
                threads: (spec.producers() + spec.consumers()) * WARPGROUP_THREADS,
                smem_bytes: builder.smem_bytes(),
            },
        }
    }

    /// The position of a quantity among the parameters. By it, an argument can be changed between
    /// launches.
    pub fn position(&self, quantity: Quantity) -> Option<usize> {
        let parameter = Parameter::Problem(quantity);
        self.parameters.iter().position(|found| *found == parameter)
    }

    /// The position of a quantity of a queue among the parameters.
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
        Launch { grid: [work.clusters * self.shape.cluster, 1, 1], arguments: arguments.collect() }
    }
}
