"""Marking a model that is already trained, by a short fine-tune with the mark in it."""

import invgnn


def main(epochs=25):
    task = invgnn.load_task("BA-2motif")
    model = invgnn.new_model(task, "GIN", seed=1)
    before = invgnn.train(model, task, epochs=15).test_acc  # somebody trained this a year ago

    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), task.data)
    print(invgnn.verify(model, mark).status)  # nothing there yet
    after = invgnn.train(model, task, mark, epochs=epochs, lr=2e-3, trained=True).test_acc

    verdict = invgnn.verify(model, mark)
    print(f"test accuracy {before:.3f} before, {after:.3f} after")
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
