"""A stand-in for ART with the functions that mttp patches."""

from art.gather import gather_trajectories, gather_trajectory_groups
from art.model import Model
from art.trajectories import Trajectory, TrajectoryGroup

__all__ = ["Model", "Trajectory", "TrajectoryGroup", "gather_trajectories", "gather_trajectory_groups"]
