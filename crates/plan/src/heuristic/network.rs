//! Neural networks that correct the estimates of kernels beside the boosted trees. Trees and
//! networks err on different choices, so a weighted mean of both errs less than either.
//! `scripts/fit-corrections.py` writes `wgmma-network.bin` for wgmma kernels and
//! `register-network.bin` for those of f64 and f32, from the same timings as the trees, and says
//! what both gain on problems that they were not fitted to.
//!
//! A network has three layers of neurons between its inputs and its output. Each neuron adds up
//! the outputs of the layer before, each times a weight, and a bias. The sum `s` of a hidden neuron
//! then goes through `s · (1 + s / (1 + |s|)) / 2`. That is a swish (Ramachandran et al.,
//! "Searching for activation functions", 2017) whose logistic function is replaced by one that
//! needs no exponential: all operations are those of IEEE 754, so every processor finds the same.
//!
//! A file consists of numbers of single precision, the lowest byte first. For each feature there
//! are the least and the greatest logarithm that occurs in the timings, their mean, and one over
//! their standard deviation. Then come the layers: for each block of [`BLOCK`] neurons (the output
//! is a block by itself) their biases, and for each output of the layer before their weights of it.

use std::sync::LazyLock;

use super::features::FEATURES;
use super::short::Short;

/// The part of the networks in a correction; the rest is the trees'. `scripts/fit-corrections.py`
/// knows this number.
const PART: f64 = 0.4;

/// Choices whose estimates a network corrects at once, a number of each in a vector register.
pub(super) const LANES: usize = 8;

/// Neurons of the hidden layers.
const HIDDEN: [usize; 3] = [96, 96, 48];

/// Neurons of a hidden layer whose sums are kept in registers.
const BLOCK: usize = 8;

/// A number of each of several choices.
type Lanes = [f32; LANES];

/// Neurons of one layer.
struct Neurons<const N: usize> {
    biases: [f32; N],
    /// Their weights of each output of the layer before.
    weights: Vec<[f32; N]>,
}

/// What becomes of a feature before the first layer.
struct Input {
    least: f32,
    greatest: f32,
    mean: f32,
    scale: f32,
}

/// A network, as its file describes it.
pub(super) struct Network {
    inputs: Vec<Input>,
    hidden: Vec<Vec<Neurons<BLOCK>>>,
    output: Neurons<1>,
}

static OF_WGMMA: LazyLock<Option<Network>> =
    LazyLock::new(|| Network::read(include_bytes!("wgmma-network.bin")));
static OF_REGISTERS: LazyLock<Option<Network>> =
    LazyLock::new(|| Network::read(include_bytes!("register-network.bin")));

/// The correction by both trees and a network, if there is one: logarithms of the factors by which
/// an estimate is too short.
pub(super) fn combined(of_trees: f64, of_network: Option<f64>) -> f64 {
    of_trees + of_network.map_or(0.0, |of_network| PART * (of_network - of_trees))
}

impl Network {
    /// The network that corrects the estimates of wgmma kernels.
    pub(super) fn of_wgmma() -> Option<&'static Network> {
        OF_WGMMA.as_ref()
    }

    /// The network that corrects the estimates of kernels that add up in registers.
    pub(super) fn of_registers() -> Option<&'static Network> {
        OF_REGISTERS.as_ref()
    }

    /// Reads a file. There is no network if it does not have the form, which the test of this
    /// module finds.
    fn read(bytes: &[u8]) -> Option<Network> {
        let (numbers, []) = bytes.as_chunks() else { return None };
        let mut numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let mut inputs = vec![];
        for _ in 0..FEATURES {
            let [least, greatest, mean, scale] = next(&mut numbers)?;
            inputs.push(Input { least, greatest, mean, scale });
        }
        let mut hidden = vec![];
        let mut before = FEATURES;
        for width in HIDDEN {
            let mut blocks = || Neurons::read(&mut numbers, before);
            hidden.push((0..width / BLOCK).map(|_| blocks()).collect::<Option<_>>()?);
            before = width;
        }
        let output = Neurons::read(&mut numbers, before)?;
        numbers.next().is_none().then_some(Network { inputs, hidden, output })
    }

    /// The logarithms of the factors by which the estimates of choices with these features are too
    /// short.
    pub(super) fn corrections(&self, choices: [&[Short; FEATURES]; LANES]) -> [f64; LANES] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: This processor has AVX2 and fused multiply-adds.
            return unsafe { self.corrections_in_avx2(choices) };
        }
        self.corrections_with(choices, add_product)
    }

    /// The same with an instruction for [`add_product`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn corrections_in_avx2(&self, choices: [&[Short; FEATURES]; LANES]) -> [f64; LANES] {
        use std::arch::x86_64::{
            _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps,
        };
        self.corrections_with(choices, |sum, weight, output| {
            // SAFETY: The vectors have eight numbers, as the registers do.
            unsafe {
                let [of_output, of_sum] =
                    [output, sum].map(|lanes| _mm256_loadu_ps(lanes.as_ptr()));
                let of_sum = _mm256_fmadd_ps(_mm256_set1_ps(weight), of_output, of_sum);
                _mm256_storeu_ps(sum.as_mut_ptr(), of_sum);
            }
        })
    }

    #[inline(always)]
    fn corrections_with(
        &self,
        choices: [&[Short; FEATURES]; LANES],
        add_product: impl Fn(&mut Lanes, f32, &Lanes),
    ) -> [f64; LANES] {
        let mut outputs = Vec::with_capacity(FEATURES);
        for (index, input) in self.inputs.iter().enumerate() {
            let mut lanes = choices.map(|choice| choice[index].into());
            for lane in &mut lanes {
                *lane = input.of(*lane);
            }
            outputs.push(lanes);
        }
        for layer in &self.hidden {
            let mut sums = Vec::with_capacity(layer.len() * BLOCK);
            for neurons in layer {
                sums.extend_from_slice(&neurons.sums(&outputs, &add_product));
            }
            sums.as_flattened_mut().iter_mut().for_each(|sum| *sum = activated(*sum));
            outputs = sums;
        }
        let [corrections] = self.output.sums(&outputs, &add_product);
        corrections.map(f64::from)
    }
}

/// Adds a weight times an output to a sum for each choice, rounded once.
fn add_product(sum: &mut Lanes, weight: f32, output: &Lanes) {
    for (sum, output) in sum.iter_mut().zip(output) {
        *sum = weight.mul_add(*output, *sum);
    }
}

impl Input {
    /// What goes into the first layer for a feature: its logarithm, less the mean and over the
    /// standard deviation. The logarithm is the binary one of the feature plus one, interpolated
    /// between powers of two: those of a number's bits say it.
    #[inline(always)]
    fn of(&self, feature: f32) -> f32 {
        let bits = (1.0 + feature).to_bits() - 1.0_f32.to_bits();
        let logarithm = bits as f32 / (1 << (f32::MANTISSA_DIGITS - 1)) as f32;
        (logarithm.clamp(self.least, self.greatest) - self.mean) * self.scale
    }
}

impl<const N: usize> Neurons<N> {
    /// Reads the neurons of a layer after one of so many outputs.
    fn read(numbers: &mut impl Iterator<Item = f32>, before: usize) -> Option<Neurons<N>> {
        let biases = next(numbers)?;
        let weights = (0..before).map(|_| next(numbers)).collect::<Option<_>>()?;
        Some(Neurons { biases, weights })
    }

    /// The sums of the neurons from the outputs of the layer before.
    #[inline(always)]
    fn sums(&self, outputs: &[Lanes], add_product: impl Fn(&mut Lanes, f32, &Lanes)) -> [Lanes; N] {
        let mut sums = self.biases.map(|bias| [bias; LANES]);
        for (output, weights) in outputs.iter().zip(&self.weights) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                add_product(sum, *weight, output);
            }
        }
        sums
    }
}

/// What a hidden neuron makes of its sum.
#[inline(always)]
fn activated(sum: f32) -> f32 {
    sum * (0.5 + 0.5 * sum / (1.0 + sum.abs()))
}

/// The next numbers of a file, if there are enough.
fn next<const N: usize>(numbers: &mut impl Iterator<Item = f32>) -> Option<[f32; N]> {
    let next: Option<Vec<_>> = (0..N).map(|_| numbers.next()).collect();
    next?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose numbers are all 0 but for those at some places.
    fn file(places: &[(usize, f32)]) -> Vec<u8> {
        let mut numbers = vec![0.0_f32; OUTPUT + 1 + HIDDEN[2]];
        for (place, number) in places {
            numbers[*place] = *number;
        }
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Where the numbers of the first input begin, and of the layers.
    const INPUT: usize = 0;
    const FIRST: usize = INPUT + 4 * FEATURES;
    const SECOND: usize = FIRST + HIDDEN[0] * (1 + FEATURES);
    const THIRD: usize = SECOND + HIDDEN[1] * (1 + HIDDEN[0]);
    const OUTPUT: usize = THIRD + HIDDEN[2] * (1 + HIDDEN[1]);

    /// Choices whose features are 0 but for two of them.
    fn choices(of_choice: impl Fn(usize) -> [f32; 2]) -> [[Short; FEATURES]; LANES] {
        std::array::from_fn(|choice| {
            let mut features = [Short::ZERO; FEATURES];
            features[..2].copy_from_slice(&of_choice(choice).map(Short::from));
            features
        })
    }

    #[test]
    fn networks_of_the_files_are_read() {
        for network in [Network::of_wgmma(), Network::of_registers()] {
            let Network { inputs, hidden, .. } = network.unwrap();
            assert!(hidden.iter().map(|layer| layer.len() * BLOCK).eq(HIDDEN));
            assert_eq!(inputs.len(), FEATURES);
            assert!(
                inputs.iter().all(|input| (input.least..=input.greatest).contains(&input.mean))
            );
        }
    }

    #[test]
    fn a_file_says_what_a_network_computes() {
        let network = Network::read(&file(&[
            // The first input goes from 0 to 3, and the second one from 1 to 4.
            (INPUT + 1, 3.0),
            (INPUT + 2, 1.0),
            (INPUT + 3, 0.5),
            (INPUT + 4, 1.0),
            (INPUT + 5, 4.0),
            (INPUT + 7, 1.0),
            // The neuron at 1 of the second block, and its weights of both.
            (FIRST + BLOCK * (1 + FEATURES) + 1, -0.5),
            (FIRST + BLOCK * (1 + FEATURES) + BLOCK + 1, 2.0),
            (FIRST + BLOCK * (1 + FEATURES) + 2 * BLOCK + 1, -1.0),
            // The next layer's first neuron takes that one, and so does the layer after.
            (SECOND + BLOCK * (1 + BLOCK + 1), 3.0),
            (THIRD + BLOCK, 1.0),
            (OUTPUT, 0.25),
            (OUTPUT + 1, -2.0),
        ]))
        .unwrap();
        let of_choice = |choice: usize| [choice as f32, [0.0, 3.0, 100.0][choice % 3]];
        let choices = choices(of_choice);
        let corrections = network.corrections(choices.each_ref());
        for (choice, correction) in corrections.into_iter().enumerate() {
            let first = [0.0, 1.0, 1.5, 2.0, 2.25, 2.5, 2.75, 3.0][choice];
            let second = [1.0, 2.0, 4.0][choice % 3];
            let swish = |sum: f64| sum * (1.0 + sum / (1.0 + sum.abs())) / 2.0;
            let sum = 2.0 * (first - 1.0) * 0.5 - second - 0.5;
            let expected = 0.25 - 2.0 * swish(swish(3.0 * swish(sum)));
            assert!((correction - expected).abs() < 1e-5, "{choice}: {correction}, not {expected}");
        }
    }

    #[test]
    fn every_processor_finds_the_same_corrections() {
        let choices = choices(|choice| [(choice * choice * 97) as f32, 7.0 / (1 + choice) as f32]);
        for network in [Network::of_wgmma(), Network::of_registers()].map(Option::unwrap) {
            let corrections = network.corrections(choices.each_ref());
            assert_eq!(corrections, network.corrections_with(choices.each_ref(), add_product));
            assert!(corrections.iter().any(|correction| *correction != corrections[0]));
        }
    }

    #[test]
    fn files_of_another_length_give_no_network() {
        let file = file(&[]);
        assert!(Network::read(&file).is_some());
        for damaged in [&file[1..], &file[4..], &[&file[..], &[0; 4]].concat(), &[]] {
            assert!(Network::read(damaged).is_none(), "{} bytes", damaged.len());
        }
    }
}
