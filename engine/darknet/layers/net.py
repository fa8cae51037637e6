"""[net]: the input shape, the batch and the number of time steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from engine.darknet.cfg import Section
from engine.darknet.options import NOT_AN_OPTION, option, read_options
from engine.errors import ConfigError
from engine.plan.shapes import Shape

_TRAINING = """
    learning_rate learning_rate_min momentum decay max_batches policy burn_in power steps scales
    step scale seq_scales gamma sgdr_cycle sgdr_mult batches_per_cycle batches_cycle_mult
    max_epochs seen adam B1 B2 eps angle aspect saturation exposure hue blur gaussian_noise
    flip mixup cutmix mosaic mosaic_bound random_crop resize_step attention adversarial_lr
    max_chart_loss label_smooth_eps center hue_shift letter_random
    try_fix_nan track augment_speed sequential_subdivisions num_sigmas_reject_badlabels
    init_sequential_subdivisions dynamic_minibatch optimized_memory workspace_size_limit_MB
    ema_alpha contrastive contrastive_jit_flip contrastive_color unsupervised
    equidistant_point badlabels_rejection_percentage badlabels_reject_threshold delta_rolling
    loss_scale weights_reject_freq max_batch_norm use_cuda_graph mosaic_scale
"""


@dataclass(frozen=True)
class Net:
    width: int = option(0, at_least=0)
    height: int = option(0, at_least=0)
    channels: int = option(0, at_least=0)
    inputs: int = option(0, at_least=0)
    batch: int = option(1, at_least=1)
    subdivisions: int = option(1, at_least=1)
    time_steps: int = option(1, at_least=1)
    letter_box: bool = False
    min_crop: int = option(0, at_least=0)
    max_crop: int = option(0, at_least=0)
    where: str = field(default="[net]", metadata=NOT_AN_OPTION, repr=False, compare=False)

    spellings: ClassVar[tuple[str, ...]] = ("net", "network")
    training: ClassVar[frozenset[str]] = frozenset(_TRAINING.split())

    @property
    def shape(self) -> Shape:
        """Return the input shape; a network without an image has `inputs` channels of one cell."""
        image = (self.channels, self.height, self.width)
        if any(image):
            if not all(image):
                raise ConfigError(
                    f"{self.where}: expected width, height and channels of 1 or more, "
                    f"got {self.width} x {self.height} x {self.channels}"
                )
            shape = Shape(*image)
            if self.inputs not in (0, shape.size):
                raise ConfigError(
                    f"{self.where} inputs: expected width * height * channels = {shape.size}, "
                    f"got {self.inputs}"
                )
            return shape
        if not self.inputs:
            raise ConfigError(f"{self.where}: expected width, height and channels, or inputs")
        return Shape(self.inputs)


def from_section(section: Section) -> Net:
    return Net(**read_options(Net, section), where=section.where)
