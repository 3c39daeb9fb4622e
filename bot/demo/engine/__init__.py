"""A simulated SGLang server of a Mamba-hybrid model: real process, port, log, metrics and signals, no GPU.

Its numbers hang together, and this is the arithmetic (Qwen3.6-27B on an H200 of 143,771 MiB, one server a GPU):

Seats. The Mamba pool has 187 state slots at ``--mem-fraction-static`` 0.85 and 217 at 0.90, in a straight line.
A request reserves 5 slots with extra_buffer (187 // 5 = 37 seats) and 3 with no_buffer (217 // 3 = 72), unless
``--max-running-requests`` is less. With extra_buffer it holds 3 of its 5, so all seats taken is a Mamba usage of
37 x 3 / 187 = 0.59. The KV cache takes 381,136 tokens at 0.85 and 392,208 at 0.90.

Speed. With b requests running, a server decodes T(b) = 60 b / (1 + 0.0643 (b - 1)) tokens a second: 670 at 37,
760 at 64, 776 at 72. Eight of them make 5.4k with extra_buffer and 6.1k to 6.2k with no_buffer, of 6.25k wanted.

The job (``bot.demo.job``) keeps 64 requests open a server. With 37 seats 27 of them wait about 24 s each, and a
worker of the job that loses its patience asks its prompt again elsewhere: one of the two answers is thrown away.
That costs a quarter, 3 of 100 answers fail the job's own check, and 3.9k of 5.4k arrive. With 72 seats nobody
waits: 5.9k of 6.1k arrive (+51 %). With more than 72 open some would wait again, so a profile for it should ask for
no more. A request holds about 2,060 tokens of cache: 37 of them are 20 % of it, 64 are 34 %.

Decoding is computed, not stepped: between two events every running request gets tokens at the same pace, so the
process sleeps until the next answer is due. ``UPBOT_SIM_SPEED`` shortens starts, ends and waits, never decoding.

Environment: ``UPBOT_SIM_DIR`` (see ``bot.demo.machine``), ``UPBOT_SIM_SPEED``, ``UPBOT_SIM_VERSION`` (0.5.13) and
``UPBOT_SIM_FIRST_START=instant``, with which a start takes no time.
"""
