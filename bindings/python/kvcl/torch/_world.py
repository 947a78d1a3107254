"""torch.distributed's own tables of groups: a group that it has not made itself is entered as one that it has."""

from typing import Any, List

import torch.distributed as dist


def register(parent: Any, smaller: Any, ranks: List[int]) -> None:
    """smaller: a group of these ranks of the parent."""
    world: Any = dist.distributed_c10d._world
    name = f"{parent.group_name}/shrunk {smaller.comm.view}.{world.group_count}"
    there = {rank: number for number, rank in world.pg_group_ranks[parent].items()}
    world.group_count += 1
    world.pg_map[smaller] = world.pg_map[parent]
    world.pg_names[smaller] = name
    world.pg_backend_config[smaller] = world.pg_backend_config[parent]
    world.pg_group_ranks[smaller] = {there[rank]: i for i, rank in enumerate(ranks)}
    world.pg_to_tag[smaller] = f"ptd:{name}"
    world.tags_to_pg.setdefault(f"ptd:{name}", []).append(smaller)
    world.tags_to_pg.setdefault("", []).append(smaller)
    dist.distributed_c10d._register_process_group(name, smaller)


def renumber(group: Any, ranks: List[int]) -> None:
    """The group has these of its first ranks now, in this order. Those of the default group are the global ones."""
    tables: Any = dist.distributed_c10d._world.pg_group_ranks
    if group is dist.group.WORLD:
        tables[group] = {i: i for i in range(len(ranks))}
    elif group in tables:
        group.first_ranks = getattr(group, "first_ranks", None) or {n: rank for rank, n in tables[group].items()}
        tables[group] = {group.first_ranks[rank]: i for i, rank in enumerate(ranks)}


def grown(group: Any) -> None:
    """The group has size() ranks now. Another one than the default group knows no global ranks of the new ones."""
    if group is dist.group.WORLD:
        renumber(group, list(range(group.size())))
