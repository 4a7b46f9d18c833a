"""The neural network that corrects the heuristic's estimates beside the boosted trees: how it is fitted, what it says, and the file
from which the planner reads it (crates/plan/src/heuristic/network.rs). scripts/fit-corrections.py uses this. Needs numpy and torch.
"""

import numpy as np
import torch

# Neurons of the hidden layers, and neurons whose weights stand together in the file. The planner
# has the same numbers.
HIDDEN = [96, 96, 48]
BLOCK = 8

# The errors of the choices of a problem count less their mean, on which no pick depends. The mean
# counts little.
WEIGHT_OF_MEAN = 0.2**2

# The network is also fitted to the mean loss of a pick that is drawn at random. Choices with low corrected estimates are drawn
# most often: each SOFTNESS by which the logarithm of an estimate is higher makes a choice e times less likely. The errors alone
# count all choices near the best alike, whether they would be picked or not.
WEIGHT_OF_LOSS = 0.2
SOFTNESS = 0.04

EPOCHS = 150
PROBLEMS_OF_STEP = 128
RATE = 4e-3
DECAY = 0.1
LARGEST_GRADIENT = 1.0
WARM_UP = 0.1


class Gate(torch.nn.Module):
    """A swish whose logistic function is replaced by one without an exponential."""

    def forward(self, sums):
        return sums * (0.5 + 0.5 * sums / (1 + sums.abs()))


def logarithms(features):
    """The binary logarithms of the features plus one, interpolated between powers of two, from the bits of single precision."""
    bits = (1 + features.astype(np.float32)).view(np.int32) - np.float32(1).view(np.int32)
    return bits.astype(np.float32) / np.float32(2**23)


class Network:
    """A network that is fitted to the errors of these estimates, by these features of choices. `of` says which problem each
    choice belongs to, `before` how long the repack kernels before it take, and `weights` what the error of each choice counts.
    The last numbers are what the loss of picking it counts."""

    def __init__(self, of, features, times, estimates, before, weights, weights_of_loss):
        torch.manual_seed(0)
        torch.set_num_threads(2)
        inputs = logarithms(features)
        deviation = inputs.std(0, dtype=np.float64)
        self.least, self.greatest = inputs.min(0), inputs.max(0)
        self.mean = inputs.mean(0, dtype=np.float64).astype(np.float32)
        # An input that is the same everywhere says nothing.
        self.scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0).astype(np.float32)
        layers, last = [], features.shape[1]
        for width in HIDDEN:
            layers += [torch.nn.Linear(last, width), Gate()]
            last = width
        layers.append(torch.nn.Linear(last, 1))
        # At first all corrections are small, as they should be.
        torch.nn.init.normal_(layers[-1].weight, std=0.01)
        self.layers = torch.nn.Sequential(*layers)
        self.fit(of, self.inputs(features), times, estimates, before, weights, weights_of_loss)

    def inputs(self, features):
        return torch.from_numpy((logarithms(features).clip(self.least, self.greatest) - self.mean) * self.scale)

    def predict(self, features):
        with torch.no_grad():
            return self.layers(self.inputs(features))[:, 0].numpy().astype(np.float64)

    def fit(self, of, inputs, times, estimates, before, weights, weights_of_loss):
        def tensor(numbers):
            return torch.from_numpy(numbers.astype(np.float32))

        errors, totals = tensor(np.log(times / estimates)), tensor(np.log(times + before))
        estimates, before = tensor(estimates), tensor(before)
        weights, weights_of_loss = tensor(weights / weights.mean()), tensor(weights_of_loss / weights_of_loss.mean())
        order = np.argsort(of, kind="stable")
        problems = np.split(order, np.flatnonzero(np.diff(of[order])) + 1)
        steps = len(problems) // PROBLEMS_OF_STEP
        optimizer = torch.optim.AdamW(self.layers.parameters(), lr=RATE, weight_decay=DECAY)
        rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps + 1, pct_start=WARM_UP)
        random = np.random.RandomState(0)
        for _ in range(EPOCHS):
            random.shuffle(problems)
            for step in range(steps):
                some = problems[step * PROBLEMS_OF_STEP : (step + 1) * PROBLEMS_OF_STEP]
                choices = torch.from_numpy(np.concatenate(some))
                problem = torch.from_numpy(np.repeat(np.arange(len(some)), [len(choices) for choices in some]))
                weight = weights[choices]
                corrections = self.layers(inputs[choices])[:, 0]
                left = corrections - errors[choices]

                def of_problem(values):
                    return torch.zeros(len(some)).index_add(0, problem, values)

                def over_least(values):
                    least = torch.full((len(some),), torch.inf).scatter_reduce(0, problem, values.detach(), "amin")
                    return values - least[problem]

                total = of_problem(weight)
                mean = of_problem(weight * left) / total
                apart = left - mean[problem]
                loss = ((weight * apart**2).sum() + WEIGHT_OF_MEAN * (total * mean**2).sum()) / weight.sum()
                corrected = torch.log(estimates[choices] * corrections.exp() + before[choices])
                likelihood = torch.exp(-over_least(corrected) / SOFTNESS)
                likelihood = likelihood / of_problem(likelihood)[problem]
                lost = of_problem(weights_of_loss[choices] * likelihood * over_least(totals[choices]))
                counted = of_problem(weights_of_loss[choices]) / of_problem(torch.ones(len(choices)))
                loss = loss + WEIGHT_OF_LOSS * lost.sum() / counted.sum()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.layers.parameters(), LARGEST_GRADIENT)
                optimizer.step()
                rates.step()

    def bytes(self):
        """The network's file: see crates/plan/src/heuristic/network.rs."""
        numbers = [np.stack([self.least, self.greatest, self.mean, self.scale], axis=1)]
        for layer in self.layers:
            if isinstance(layer, Gate):
                continue
            weights, biases = (of_layer.detach().numpy() for of_layer in (layer.weight, layer.bias))
            block = min(BLOCK, len(biases))
            for begin in range(0, len(biases), block):
                neurons = slice(begin, begin + block)
                numbers += [biases[neurons], weights[neurons].T]
        return b"".join(np.ascontiguousarray(part, dtype="<f4").tobytes() for part in numbers)
