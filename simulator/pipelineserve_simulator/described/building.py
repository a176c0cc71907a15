"""From a description to the scenario that it means; whatever cannot be is named by its field."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Poisson
from pipelineserve.load.arrivals import Timestamps as FileTimes
from pipelineserve.load.row_files import RowFile, read_rows
from pipelineserve.load.selection import RowChoice
from pipelineserve.load.targets import Target
from pipelineserve.load.targets import Targets as LoadTargets
from pipelineserve.partition import given_partition
from pipelineserve.policy.control.objectives import HoldLaw, LatencyGoal, Objectives, OrderLaw
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.rebalancing import HoldMode
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.baselines.options import BaselineName, BaselineOptions, LatencyTargets
from pipelineserve_simulator.baselines.registry import make_scheduler
from pipelineserve_simulator.control.controller import controlled_by
from pipelineserve_simulator.control.objectives import Asked, objectives_of
from pipelineserve_simulator.control.settings import ControlSettings, Edit
from pipelineserve_simulator.described.description import (
    Control,
    PolicyName,
    SimulationDescription,
    Targets,
    TimingName,
)
from pipelineserve_simulator.described.faults import faults_of
from pipelineserve_simulator.hardware.catalogue import load_profile, profile_from_text, profile_names
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout, even_layout
from pipelineserve_simulator.pipeline.options import FreeRunning, Interleaved, LockStep, Timing
from pipelineserve_simulator.scenario import Scenario
from pipelineserve_simulator.workloads.arriving import RandomArrivals
from pipelineserve_simulator.workloads.registry import WorkloadName, WorkloadOptions, make_workload
from pipelineserve_simulator.workloads.replay import RowWorkload
from pipelineserve_simulator.workloads.requests import Workload
