"""The grader of the reward spec."""


def exact(completion, answer):
    """Compare the answer."""
    return float(completion == answer)
