"""A link in shared memory delivers every micro-batch whole and in order, or says that it is cut."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.transport.shared_memory import (
    RingReceiver,
    RingSender,
    RingShape,
    make_link,
)

HIDDEN_SIZE = 3
PLACE_TOKENS = 5


@contextmanager
def a_link(num_places: int = 3) -> Iterator[tuple[RingSender, RingReceiver]]:
    ring = RingShape(num_places, PLACE_TOKENS, HIDDEN_SIZE, torch.float32)
    sending, receiving = make_link(ring)
    sender, receiver = RingSender(sending, ring), RingReceiver(receiving, ring)
    try:
        yield sender, receiver
    finally:
        sender.close()
        receiver.close()


def a_batch(number: int, num_tokens: int) -> torch.Tensor:
    return torch.full((num_tokens, HIDDEN_SIZE), float(number))


@given(
    num_places=st.integers(1, 4),
    moves=st.lists(
        st.one_of(st.integers(1, PLACE_TOKENS), st.sampled_from(["read", "release"])), max_size=40
    ),
)
def test_any_order_of_sends_and_reads_delivers_the_same_in_order_within_the_places(
    num_places: int, moves: list[int | str]
) -> None:
    with a_link(num_places) as (sender, receiver):
        sent: deque[torch.Tensor] = deque()
        held: deque[tuple[torch.Tensor, torch.Tensor]] = deque()
        number = 0
        for move in moves:
            assert sender.num_free == num_places - len(sent) - len(held)
            if move == "read":
                if sent:
                    expected = sent.popleft()
                    held.append((expected, receiver.read(len(expected))))
            elif move == "release":
                if held:
                    held.popleft()
                    receiver.give_back()
            elif sender.num_free > 0:
                assert isinstance(move, int)
                number += 1
                sent.append(a_batch(number, move))
                sender.send(sent[-1])
            # What is held lies where it was written, and nothing may have been written over it.
            assert all(torch.equal(expected, got) for expected, got in held)
        while sent:
            expected = sent.popleft()
            assert torch.equal(receiver.read(len(expected)), expected)


def test_a_send_into_a_full_ring_waits_for_a_place() -> None:
    with a_link(num_places=1) as (sender, receiver):
        sender.send(a_batch(1, 2))
        second = threading.Thread(target=sender.send, args=(a_batch(2, 2),))
        second.start()
        first = receiver.read(2)
        assert torch.equal(first, a_batch(1, 2))
        assert second.is_alive()
        receiver.give_back()
        second.join(timeout=60.0)
        assert torch.equal(receiver.read(2), a_batch(2, 2))


def test_a_place_that_is_being_read_is_not_written_even_when_its_reader_closes() -> None:
    with a_link(num_places=1) as (sender, receiver):
        sender.send(a_batch(1, 2))
        held = receiver.read(2)
        receiver.close()
        with pytest.raises(EngineUnavailableError, match="the stage behind is gone"):
            sender.send(a_batch(2, 2))
        assert torch.equal(held, a_batch(1, 2))


def test_what_was_sent_before_the_sender_closed_can_be_read_and_given_back() -> None:
    with a_link() as (sender, receiver):
        sender.send(a_batch(7, 4))
        sender.close()
        assert torch.equal(receiver.read(4), a_batch(7, 4))
        receiver.give_back()
        with pytest.raises(EngineUnavailableError, match="the stage before is gone"):
            receiver.read(4)


@given(num_sent=st.integers(0, 4), num_given_back=st.integers(0, 4), num_counted=st.integers(0, 4))
def test_whatever_was_given_back_before_the_sender_closed_the_rest_can_be_read(
    num_sent: int, num_given_back: int, num_counted: int
) -> None:
    with a_link(num_places=4) as (sender, receiver):
        for number in range(num_sent):
            sender.send(a_batch(number, 2))
        num_given_back = min(num_given_back, num_sent)
        for number in range(num_given_back):
            receiver.read(2)
            receiver.give_back()
            if number < num_counted:
                assert sender.num_free == 4 - num_sent + number + 1
        sender.close()
        for number in range(num_given_back, num_sent):
            assert torch.equal(receiver.read(2), a_batch(number, 2))
            receiver.give_back()
        with pytest.raises(EngineUnavailableError, match="it closed its link"):
            receiver.read(2)


def test_a_place_that_a_killed_sender_will_never_write_is_given_back_all_the_same() -> None:
    with a_link() as (sender, receiver):
        sender.send(a_batch(1, 2))
        receiver.read(2)
        receiver.give_back()
        sender._channel.close()  # as the kernel does it, with the place that was given back unread
        receiver.give_back()
        with pytest.raises(EngineUnavailableError, match="the stage before is gone"):
            receiver.read(2)


def test_a_sender_whose_receiver_is_gone_says_so() -> None:
    with a_link() as (sender, receiver):
        receiver.close()
        with pytest.raises(EngineUnavailableError, match="the stage behind is gone"):
            sender.send(a_batch(1, 1))


def test_stages_that_disagree_on_the_tokens_are_told() -> None:
    with a_link() as (sender, receiver):
        sender.send(a_batch(1, 3))
        with pytest.raises(
            EngineUnavailableError, match="got a micro-batch of 3 tokens, expected 4"
        ):
            receiver.read(4)


def test_a_micro_batch_beyond_the_places_is_refused_before_anything_is_written() -> None:
    with a_link() as (sender, _):
        with pytest.raises(EngineUnavailableError, match="6 tokens does not fit"):
            sender.send(a_batch(1, PLACE_TOKENS + 1))
        assert sender.num_free == 3


KILLED_SENDER = """
import os, signal, torch
from pipelineserve_engine.transport.link_settings import LinkEnd
from pipelineserve_engine.transport.shared_memory import RingSender, RingShape
ring = RingShape(3, 5, 3, torch.float32)
sender = RingSender(LinkEnd({memory}, {channel}), ring)
sender.send(torch.full((2, 3), 1.0))
sender._places[1].fill_(9.0)  # half way through the second one
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_sender_killed_while_it_writes_leaves_nothing_to_be_read() -> None:
    ring = RingShape(3, PLACE_TOKENS, HIDDEN_SIZE, torch.float32)
    sending, receiving = make_link(ring)
    receiver = RingReceiver(receiving, ring)
    program = KILLED_SENDER.format(memory=sending.memory, channel=sending.channel)
    child = subprocess.Popen([sys.executable, "-c", program], pass_fds=sending.descriptors)
    sending.close()
    assert torch.equal(receiver.read(2), a_batch(1, 2))
    with pytest.raises(EngineUnavailableError, match="the stage before is gone"):
        receiver.read(2)
    receiver.close()
    assert child.wait() == -signal.SIGKILL


def test_a_ring_has_no_name_that_could_stay_behind() -> None:
    sending, receiving = make_link(RingShape(3, PLACE_TOKENS, HIDDEN_SIZE, torch.float32))
    assert os.fstat(sending.memory).st_nlink == 0
    sending.close()
    receiving.close()
