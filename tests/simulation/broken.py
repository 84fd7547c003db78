"""What a run that breaks something raises."""


class Broken(AssertionError):
    """Something that must hold did not."""
