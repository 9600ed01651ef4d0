"""One tree of errors: every message names the table or part, the place, and what is allowed."""


class NousError(Exception):
    """Base of every error that nousppl raises for something the user can mend."""


class EvidenceError(NousError):
    """A table of claims, sources or settled facts cannot be used as it stands."""


class QuestionError(NousError):
    """A question does not exist, or cannot be asked of this trust."""


class ModelError(NousError):
    """A model specification is wrong, or does not fit the evidence it is used on."""


class InferenceError(NousError):
    """A fit or a posterior could not be computed."""


class FileError(NousError):
    """A saved trust or a data file cannot be read."""


class NousWarning(UserWarning):
    """Something was left aside or looks doubtful; the result stands."""
