"""Write base.json: what vLLM generates without the connector."""

import json

import engine


def main():
    llm = engine.start()
    with open("base.json", "w", encoding="ascii") as file:
        json.dump(engine.generate(llm)[0], file)


if __name__ == "__main__":
    main()
