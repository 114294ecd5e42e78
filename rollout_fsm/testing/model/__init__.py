"""The contract of a model, as a class of tests."""

from rollout_fsm.testing.model.answering import AnswerChecks
from rollout_fsm.testing.model.failing import FailureChecks
from rollout_fsm.testing.model.streaming import StreamChecks

__all__ = ["ModelContract"]


class ModelContract(FailureChecks, StreamChecks, AnswerChecks):
    """Does a model keep its contract?

        class TestMyModel(ModelContract):
            def make(self) -> MyModel:
                return MyModel("name")

    The tests ask it some forty short questions; one that costs money is best tried against a stand-in of its endpoint.
    What a model does not offer is declared by the attributes of `ModelChecks`, and skipped.
    """
