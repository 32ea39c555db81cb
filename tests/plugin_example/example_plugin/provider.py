"""A model provider that repeats what it is told."""

from acceld.llm.client import Completion, Received, Usage


class Parrot:
    """Implements :class:`acceld.llm.client.LLMClient`."""

    async def complete(self, request):
        """Return the user's own words."""
        if request.progress is not None:
            await request.progress.sending(Received())
        return Completion(request.user, "parrot-1", Usage(len(request.user), output_tokens=len(request.user)))

    async def close(self):
        """Do nothing."""


def connect(settings, environment):
    """Return the client that ``settings`` describe."""
    return Parrot()
